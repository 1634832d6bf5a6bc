//! The driver: found at run time, its results as errors.

use std::ffi::CStr;
use std::sync::OnceLock;

use comm_core::{Error, ErrorKind, Result};
use cudarc::driver::sys;

/// The oldest driver interface that is used: CUDA 11.4.
const LEAST_VERSION: i32 = 11_040;

/// Loads and initialises the driver, once.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if there is no driver, no GPU, or the driver is too old.
pub(crate) fn load() -> Result<()> {
    static LOADED: OnceLock<Result<()>> = OnceLock::new();
    LOADED.get_or_init(initialise).clone()
}

fn initialise() -> Result<()> {
    // Any other call panics if there is no library.
    // SAFETY: initialising the driver's library has no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "there is no CUDA driver (libcuda.so.1); install NVIDIA's driver, and in a container \
             use its runtime",
        ));
    }
    // SAFETY: the library is present.
    let initialised = unsafe { sys::cuInit(0) };
    check("initialising CUDA", initialised).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the CUDA driver cannot be used").with("reason", error)
    })?;
    let mut version = 0;
    // SAFETY: the version can be written.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    check("asking for the driver's version", asked)?;
    if version < LEAST_VERSION {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "the CUDA driver is too old; version 11.4 or later is needed",
        )
        .with(
            "version",
            format!("{}.{}", version / 1000, version % 1000 / 10),
        ));
    }
    Ok(())
}

/// The number of GPUs that the process may use.
pub(crate) fn device_count() -> Result<u32> {
    let mut count = 0;
    // SAFETY: the count can be written.
    let asked = unsafe { sys::cuDeviceGetCount(&raw mut count) };
    check("counting GPUs", asked)?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// Turns a result of the driver into an error that names what was done.
///
/// # Errors
///
/// [`ErrorKind::ResourceExhausted`] if memory is short, [`ErrorKind::System`] for everything else.
pub(crate) fn check(what: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = std::ptr::null();
    // SAFETY: the name can be written.
    let named = unsafe { sys::cuGetErrorName(result, &raw mut name) };
    let name = if named == sys::CUresult::CUDA_SUCCESS && !name.is_null() {
        // SAFETY: the driver's names are constant strings.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    } else {
        format!("error {}", result as u32)
    };
    let kind = match result {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::ResourceExhausted,
        _ => ErrorKind::System,
    };
    Err(Error::new(kind, format!("{what} failed: {name}")))
}

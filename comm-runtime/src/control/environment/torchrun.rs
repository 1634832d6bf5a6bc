//! What torchrun tells its workers about where to meet.

use comm_core::{Error, ErrorKind, Result};

use super::{EXAMPLE, LOOPBACK, LaunchEnvironment, missing, number};
use crate::control::rendezvous::TorchrunJob;

/// The job, from `MASTER_ADDR`, `MASTER_PORT` and the variables of the elastic agent.
pub(super) fn job(
    found: &LaunchEnvironment,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<TorchrunJob> {
    let (address, port) = (variable("MASTER_ADDR"), variable("MASTER_PORT"));
    let (Some(host), Some(_)) = (&address, &port) else {
        let mut absent = Vec::new();
        absent.extend(address.is_none().then_some("MASTER_ADDR"));
        absent.extend(port.is_none().then_some("MASTER_PORT"));
        return Err(missing(&["RANK", "WORLD_SIZE"], &absent).with("or_instead", EXAMPLE));
    };
    let one_host = found.local_world_size == Some(found.world_size);
    let port = number(variable, "MASTER_PORT")?;
    Ok(TorchrunJob {
        host: if one_host { LOOPBACK } else { host }.to_owned(),
        agent_port: u16::try_from(port).map_err(|_| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "MASTER_PORT is no port number",
            )
            .with("MASTER_PORT", port)
        })?,
        run_id: variable("TORCHELASTIC_RUN_ID").unwrap_or_default(),
        restart_count: variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_default(),
    })
}

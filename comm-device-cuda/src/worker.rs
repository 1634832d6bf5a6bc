//! The device's thread: waits for copies of the stream and makes those that would make callers
//! wait.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use comm_core::device::{CopyCompleter, CopyEvent, DeviceMemory};
use comm_core::{Error, ErrorKind, Result};
use cudarc::driver::sys;

use crate::context::{Context, Event, address};
use crate::driver::check;

/// What is to be done, with the memories that must stay alive until then.
struct Job {
    work: Work,
    target: DeviceMemory,
    source: DeviceMemory,
    completer: CopyCompleter,
}

enum Work {
    /// Wait for a copy of the stream.
    Wait(Event),
    /// Copy from or to pageable memory.
    Copy,
}

/// The thread; it ends, once everything is done, when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Mutex<Sender<Job>>,
}

impl Worker {
    pub(crate) fn start(context: &Arc<Context>) -> Result<Self> {
        let (jobs, inbox) = channel();
        let context = Arc::clone(context);
        thread::Builder::new()
            .name(format!("comm-{context:?}"))
            .spawn(move || run(&context, &inbox))
            .map_err(|error| Error::system("starting the thread of a GPU", error))?;
        Ok(Self {
            jobs: Mutex::new(jobs),
        })
    }

    /// The event that is done when the copy of the stream in front of `event` is.
    pub(crate) fn wait_for(
        &self,
        event: Event,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<CopyEvent> {
        self.submit(Work::Wait(event), target, source)
    }

    /// Copies between memories of which at least one is pageable.
    ///
    /// # Safety
    ///
    /// Both are equally long, the device reaches both, and until the event is done nobody else
    /// writes to the source or accesses the target.
    pub(crate) unsafe fn copy(
        &self,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<CopyEvent> {
        self.submit(Work::Copy, target, source)
    }

    fn submit(
        &self,
        work: Work,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<CopyEvent> {
        let (event, completer) = CopyEvent::pending();
        let job = Job {
            work,
            target: target.clone(),
            source: source.clone(),
            completer,
        };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = jobs.send(job) {
            let job = refused.0;
            if let Work::Wait(event) = &job.work {
                // The copy is under way: its memories must not go before it is done.
                event.wait()?;
            }
            return Err(Error::new(
                ErrorKind::Internal,
                "the thread of a GPU has ended",
            ));
        }
        Ok(event)
    }
}

fn run(context: &Arc<Context>, inbox: &Receiver<Job>) {
    let entered = context.make_current();
    for job in inbox {
        let outcome = entered.clone().and_then(|()| match &job.work {
            Work::Wait(event) => event.wait(),
            Work::Copy => copy(&job.target, &job.source),
        });
        let Job {
            work,
            target,
            source,
            completer,
        } = job;
        // What the copy kept alive is released before anybody hears of its end.
        drop((work, target, source));
        completer.end(outcome);
    }
}

fn copy(target: &DeviceMemory, source: &DeviceMemory) -> Result<()> {
    let (to, from) = (address(target.as_ptr()), address(source.as_ptr()));
    // SAFETY: both memories are alive and equally long, and by the promise of whoever submitted
    // the copy nobody else accesses them.
    let copied = unsafe { sys::cuMemcpy(to, from, target.len_bytes()) };
    check("copying", copied)?;
    // A copy of memory on the device alone is not waited for by the driver.
    // SAFETY: the context is current.
    check("copying", unsafe { sys::cuCtxSynchronize() })
}

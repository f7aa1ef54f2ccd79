//! A lane that runs in its own thread, with an idle policy, while frames are sent to it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use fastlane_core::Idle;
use fastlane_table::counters::{Counters, PortCounter, PortCounters};
use rustix::event::epoll;
use rustix::thread::{Pid, gettid};

use crate::device::cpu_time::{pin, undisturbed};
use crate::device::echo_lane::{EchoLane, Mechanism};
use crate::device::load::Echoes;
use crate::rivals::ffi;
use crate::{Error, Result};

/// Lane in a thread on CPU 1; the sender is on CPU 0.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    id: Pid,
    port: PortCounters,
    _counters: Counters,
}

impl Running {
    /// Opens the interface in the namespace of the calling thread and starts the lane.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn start(mechanism: Mechanism, idle: Idle, interface: &str) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, started) = mpsc::channel();
        let (interface, stopping) = (interface.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            pin(1);
            // Lanes of an application do the same: the default slack adds 50 microseconds to a
            // sleep.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            let opened = EchoLane::open(mechanism, &interface).and_then(|mut lane| {
                let interrupts = watch(&lane)?;
                lane.lane().wait_on(interrupts, idle);
                Ok(lane)
            });
            match opened {
                Ok(mut lane) => {
                    let _ = send.send(Ok((gettid(), lane.counters().clone())));
                    undisturbed(|| lane.lane().run(&stopping));
                }
                Err(error) => drop(send.send(Err(error))),
            }
        });
        let started = started.recv().unwrap_or_else(|_| Err(Error::from("the lane panicked")));
        let (id, counters) = started?;
        let port = counters.port(0, 0);
        Ok(Self { stop, thread: Some(thread), id, port, _counters: counters })
    }
}

impl Echoes for Running {
    fn cpu(&self) -> Result<u64> {
        Ok(ffi::cpu_of_thread(self.id)?)
    }

    fn echoed(&self) -> u64 {
        self.port.load(PortCounter::SentPackets)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(lane: &EchoLane) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for interrupt in lane.interrupts().ok_or("a port without interrupt")? {
        epoll::add(&epoll, interrupt, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

//! A client of the agent that follows no rules.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use fastlane::agent::records::{self, Attached, Request, Response};
use fastlane::agent::seqpacket;
use fastlane_tests::{Agent, NOBODY};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::process::{Gid, Uid};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// All seals that the agent wants.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Runs a function on a thread that is a process of [`NOBODY`] to the kernel.
pub(crate) fn as_nobody<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    let become_nobody = || {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
        function()
    };
    let done = std::thread::scope(|scope| scope.spawn(become_nobody).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Creates memory of [`NOBODY`] with its pages.
pub(crate) fn memory(length: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    as_nobody(|| {
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("hostile", flags).expect("a memfd");
        if !flags.contains(MemfdFlags::HUGETLB) {
            let all = FallocateFlags::empty();
            rustix::fs::fallocate(&file, all, 0, length).expect("the pages");
        }
        rustix::fs::fcntl_add_seals(&file, seals).expect("the seals");
        file
    })
}

/// Connection to the agent.
pub(crate) struct Hostile {
    pub(crate) socket: OwnedFd,
    number: u32,
}

impl Hostile {
    /// Connects as [`NOBODY`].
    #[track_caller]
    pub(crate) fn connect(agent: &Agent) -> Self {
        Self::connect_at(agent.socket())
    }

    /// Connects as [`NOBODY`] to a socket.
    #[track_caller]
    pub(crate) fn connect_at(path: &Path) -> Self {
        let socket = as_nobody(|| seqpacket::connect(path));
        Self { socket: socket.expect("everybody may connect"), number: 0 }
    }

    /// Sends bytes as a record, which the agent may have refused already.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let _ = seqpacket::send(&self.socket, bytes, descriptors, PATIENCE);
    }

    /// Receives a response with its number; `None` at the end of the connection.
    #[track_caller]
    pub(crate) fn receive(&self) -> Option<(u32, Response, Vec<OwnedFd>)> {
        let received = seqpacket::receive(&self.socket, Some(Instant::now() + PATIENCE));
        let received = received.expect("the agent responds")?;
        let (number, response) = records::decode(&received.bytes).expect("a response");
        Some((number, response, received.descriptors))
    }

    /// Sends a request. Returns the response and its descriptors, or the reason of a refusal.
    #[track_caller]
    pub(crate) fn request(
        &mut self,
        request: &serde_json::Value,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Response, Vec<OwnedFd>), String> {
        self.number += 1;
        let request: Request = serde_json::from_value(request.clone()).expect("a request");
        let record = records::encode(self.number, &request).expect("a short record");
        self.send(&record, descriptors);
        let (number, response, descriptors) = self.receive().expect("a response");
        assert!(number == self.number || number == 0, "{number}: {response:?}");
        match response {
            Response::Refused(reason) => Err(reason),
            response => Ok((response, descriptors)),
        }
    }

    /// Attaches to `wire0`. Returns the token of the device.
    #[track_caller]
    pub(crate) fn attach(&mut self) -> String {
        self.try_attach().expect("a device")
    }

    /// Attaches to `wire0`, or returns the reason of the refusal.
    #[track_caller]
    pub(crate) fn try_attach(&mut self) -> Result<String, String> {
        let driver = json!({"af-xdp": {"interface": "wire0", "mode": "native-copy"}});
        let steer = json!([{"udp-port": 2152}]);
        let attach = json!({"attach": {"driver": driver, "steer": steer, "max-length": 1792}});
        match self.request(&attach, &[])? {
            (Response::Attached(Attached { device, .. }), _) => Ok(device),
            other => panic!("{other:?}"),
        }
    }

    /// Asks for queues of a device with this memory.
    #[track_caller]
    pub(crate) fn bind(
        &mut self,
        device: &str,
        queues: &[u32],
        memory: impl AsFd,
    ) -> Result<(Response, Vec<OwnedFd>), String> {
        let devices = json!([{"device": device, "queues": queues}]);
        let lane = json!({"bind-lane": {"frame-size": 2048, "devices": devices}});
        self.request(&lane, &[memory.as_fd()])
    }
}

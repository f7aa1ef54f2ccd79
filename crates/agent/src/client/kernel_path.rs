//! Requests about the paths of a client's packets into Linux: TAP devices and re-entry.

use std::os::fd::{AsFd, OwnedFd};

use fastlane::agent::records::{DESCRIPTORS, REENTRY_MARK, Request, Response};
use fastlane::kernel::reentry::{self, Method, Reentry};

use super::{Client, MAX_DEVICES};
use crate::answer::Answer;
use crate::taps::ClientTaps;

/// Limit of the numbers of re-entries. A client that was there before the agent names its own.
const MAX_NUMBER: u32 = 1 << 16;

impl Client {
    /// Handles a request about a TAP device or a re-entry.
    pub(super) fn handle_kernel_path(
        &mut self,
        request: Request,
        descriptors: &[OwnedFd],
        connection: &OwnedFd,
    ) -> Answer {
        match request {
            Request::Tap(tap) => return self.taps.open(&self.pools, tap, descriptors, connection),
            Request::SetTapDown { name } => {
                self.taps.set_down(&self.pools, &name, connection)?;
            }
            Request::Follow { tap, device } => {
                let now = self.interface(&device)?;
                ClientTaps::follow(&self.pools, &tap, &now, connection)?;
            }
            Request::Reenter { device, queues } => return self.reenter(&device, queues),
            Request::Redirect { reentry, device } => {
                let queue = descriptors.first().ok_or("no descriptor")?;
                self.redirect(reentry, &device, queue)?;
            }
            _ => return Err("it is no request about a path into Linux".to_owned()),
        }
        Ok((Response::Done, vec![]))
    }

    /// Opens the queues by which frames re-enter Linux.
    fn reenter(&mut self, device: &str, queues: u32) -> Answer {
        if self.reentries.len() >= MAX_DEVICES {
            return Err(format!("a client has at most {MAX_DEVICES} re-entries"));
        }
        let now = self.interface(device)?;
        if !(1..=DESCRIPTORS).contains(&(queues as usize)) {
            return Err(format!("a re-entry has 1 to {DESCRIPTORS} queues, not {queues}"));
        }
        let method = self.method(device)?;
        let opened = reentry::open(&now, method, queues as usize);
        let (reentry, queues) = opened.map_err(|error| error.to_string())?;
        let number = self.reentries.last_key_value().map_or(0, |(last, _)| last + 1);
        self.pin(&reentry, number, device)?;
        let files = queues.iter().map(|queue| {
            let file = queue.kept().ok_or("a queue is closed")?;
            file.try_clone_to_owned().map_err(|error| error.to_string())
        });
        let files = files.collect::<Result<_, String>>()?;
        self.reentries.insert(number, (now.index, reentry));
        Ok((Response::Reentry(number), files))
    }

    /// Returns the method of re-entry on the interface of a device.
    fn method(&mut self, device: &str) -> Result<Method, String> {
        // In generic XDP mode a redirect would run the program again; AF_PACKET needs the mark.
        Ok(match self.device(device)?.is_af_packet() {
            true => Method::Redirect { mark: REENTRY_MARK },
            false => Method::Mirred,
        })
    }

    /// Pins the program of a re-entry with those of a device.
    fn pin(&mut self, reentry: &Reentry, number: u32, device: &str) -> Result<(), String> {
        let pinned = reentry.pin(self.device(device)?.pins.path(), number as usize);
        pinned.map_err(|error| error.to_string())
    }

    /// Lets a re-entry follow the interface of a device, or another one in its place. One that an
    /// agent before this one has opened is found by its queue.
    fn redirect(&mut self, number: u32, device: &str, queue: &OwnedFd) -> Result<(), String> {
        let now = self.interface(device)?;
        let failed = |error: fastlane::kernel::Error| error.to_string();
        let (redirected, mut reentry) = match self.reentries.remove(&number) {
            Some(known) => known,
            None if self.reentries.len() >= MAX_DEVICES || number >= MAX_NUMBER => {
                return Err("there is no such re-entry".to_owned());
            }
            None => {
                let method = self.method(device)?;
                (0, Reentry::of_queue(queue.as_fd(), method).map_err(failed)?)
            }
        };
        let followed = match now.index == redirected {
            true => reentry.follow_mac(&now),
            false => reentry.redirect_to(&now),
        };
        let pinned = followed.map_err(failed).and_then(|()| self.pin(&reentry, number, device));
        let redirected = if pinned.is_ok() { now.index } else { redirected };
        self.reentries.insert(number, (redirected, reentry));
        pinned
    }
}

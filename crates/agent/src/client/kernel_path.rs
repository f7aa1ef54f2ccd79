//! Requests about the paths of a client's packets into Linux: TAP devices and re-entry.

use std::os::fd::OwnedFd;

use fastlane::agent::records::{DESCRIPTORS, REENTRY_MARK, Request, Response};
use fastlane::kernel::reentry::{self, Method};

use super::{Client, MAX_DEVICES};
use crate::answer::Answer;
use crate::taps::ClientTaps;

impl Client {
    /// Handles a request about a TAP device or a re-entry.
    pub(super) fn handle_kernel_path(
        &mut self,
        request: Request,
        sockets: &[OwnedFd],
        connection: &OwnedFd,
    ) -> Answer {
        match request {
            Request::Tap(tap) => return self.taps.open(&self.pools, tap, sockets, connection),
            Request::SetTapDown { name } => {
                self.taps.set_down(&self.pools, &name, connection)?;
            }
            Request::Follow { tap, device } => {
                let now = self.interface(&device)?;
                ClientTaps::follow(&self.pools, &tap, &now, connection)?;
            }
            Request::Reenter { device, queues } => return self.reenter(&device, queues),
            Request::Redirect { reentry, device } => self.redirect(reentry, &device)?,
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
        // In generic XDP mode a redirect would run the program again; AF_PACKET needs the mark.
        let method = match self.device(device)?.is_af_packet() {
            true => Method::Redirect { mark: REENTRY_MARK },
            false => Method::Mirred,
        };
        let opened = reentry::open(&now, method, queues as usize);
        let (reentry, queues) = opened.map_err(|error| error.to_string())?;
        let number = self.reentries.len();
        let pinned = reentry.pin(self.device(device)?.pins.path(), number);
        pinned.map_err(|error| error.to_string())?;
        let files = queues.iter().map(|queue| {
            let file = queue.kept().ok_or("a queue is closed")?;
            file.try_clone_to_owned().map_err(|error| error.to_string())
        });
        let files = files.collect::<Result<_, String>>()?;
        self.reentries.push((now.index, reentry));
        Ok((Response::Reentry(self.reentries.len() as u32 - 1), files))
    }

    /// Lets a re-entry follow the interface of a device, or another one in its place.
    fn redirect(&mut self, number: u32, device: &str) -> Result<(), String> {
        let now = self.interface(device)?;
        let device = self.devices.get(device).ok_or("there is no such device")?;
        let reentry = self.reentries.get_mut(number as usize);
        let (redirected, reentry) = reentry.ok_or("there is no such re-entry")?;
        let followed = match now.index == *redirected {
            true => reentry.follow_mac(&now),
            false => reentry.redirect_to(&now),
        };
        followed.map_err(|error| error.to_string())?;
        let pinned = reentry.pin(device.pins.path(), number as usize);
        pinned.map_err(|error| error.to_string())?;
        *redirected = now.index;
        Ok(())
    }
}

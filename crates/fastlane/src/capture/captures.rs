//! Application side of captures: validates a request and hands the rings to the lanes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane_capture::{Capture, CaptureMailbox, Instruction, Program, Selection, VerdictSet};
use fastlane_core::PortId;
use fastlane_table::SharedMemory;
use fastlane_table::journal::{JournalWriter, size};

use super::{CaptureGrant, Label, MOST_BYTES, RING_BYTES, Request};

/// Maximum number of ended captures that lanes may still use; further requests are refused.
const MOST_RETIRED: usize = 4;

/// Captures of an application: the running one and ended ones.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    lanes: Vec<Arc<CaptureMailbox>>,
    ports: usize,
    running: Option<Running>,
    /// Ended captures, kept until all lanes have released them so that no lane frees memory.
    retired: Vec<Vec<Arc<Capture>>>,
}

/// The running capture; there is at most one.
#[derive(Debug)]
struct Running {
    process: u32,
    /// Lanes that capture.
    lanes: Vec<usize>,
    captures: Vec<Arc<Capture>>,
}

impl Captures {
    /// Creates it for an application with these lanes and this number of ports.
    pub(crate) fn new(lanes: Vec<Arc<CaptureMailbox>>, ports: usize) -> Self {
        Self { lanes, ports, ..Self::default() }
    }

    /// Starts a capture for `process`. Returns the reply and the memory of the rings.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn start(
        &mut self,
        request: &[u8],
        process: u32,
    ) -> Result<(Vec<u8>, OwnedFd), String> {
        let request: Request = serde_json::from_slice(request).map_err(|error| {
            format!("the request cannot be read ({error}); install both programs from one release")
        })?;
        self.sweep();
        if let Some(Running { process, .. }) = self.running {
            return Err(format!("captured already by process {process}; stop that capture first"));
        }
        if self.retired.len() >= MOST_RETIRED {
            return Err("the lanes still hold earlier captures; try again in a second".to_owned());
        }
        let lanes = self.lanes(&request)?;
        let selection = self.selection(&request)?;
        let no_memory =
            |error: io::Error| format!("no memory for the rings ({error}); use smaller rings");
        let bytes = ring_bytes(&request, lanes.len())?;
        let memory = SharedMemory::create("fastlane-capture", bytes).map_err(no_memory)?;
        let memory = Arc::new(memory);
        let descriptor = memory.as_fd().try_clone_to_owned().map_err(no_memory)?;
        let captures = (0..lanes.len()).map(|number| {
            let ring = JournalWriter::create(&memory, number, request.ring_bytes);
            let ring = ring.map_err(|error| error.to_string())?;
            ring.populate();
            Ok(Arc::new(Capture { selection: selection.clone(), ring }))
        });
        let captures: Vec<_> = captures.collect::<Result<_, String>>()?;
        let answer = serde_json::to_vec(&CaptureGrant { lanes: lanes.clone() });
        let answer = answer.map_err(|error| error.to_string())?;
        for (lane, capture) in lanes.iter().zip(&captures) {
            self.lanes[*lane].put(Some(Arc::clone(capture)));
        }
        self.running = Some(Running { process, lanes, captures });
        Ok((answer, descriptor))
    }

    /// Ends the running capture.
    pub(crate) fn stop(&mut self) {
        if let Some(Running { lanes, captures, .. }) = self.running.take() {
            lanes.iter().for_each(|lane| drop(self.lanes[*lane].put(None)));
            self.retired.push(captures);
        }
        self.sweep();
    }

    /// Returns true if lanes may still use an ended capture, which [`sweep`](Self::sweep) frees.
    pub(crate) fn are_held(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Frees captures that all lanes have released.
    pub(crate) fn sweep(&mut self) {
        let held = |captures: &Vec<Arc<Capture>>| {
            captures.iter().any(|capture| Arc::strong_count(capture) > 1)
        };
        self.retired.retain(held);
    }

    fn lanes(&self, request: &Request) -> Result<Vec<usize>, String> {
        let count = self.lanes.len();
        if count == 0 {
            return Err("this application cannot be captured".to_owned());
        }
        let mut lanes = request.lanes.clone();
        lanes.sort_unstable();
        lanes.dedup();
        match lanes.last() {
            None => Ok((0..count).collect()),
            Some(last) if *last >= count => {
                Err(format!("no lane {last}; the number of lanes is {count}"))
            }
            Some(_) => Ok(lanes),
        }
    }

    fn selection(&self, request: &Request) -> Result<Selection, String> {
        if let Some(port) = request.ports.iter().find(|port| usize::from(**port) >= self.ports) {
            return Err(format!("no port {port}; the number of ports is {}", self.ports));
        }
        if !request.arriving && !request.leaving {
            return Err("neither received nor sent packets are selected; select one".to_owned());
        }
        let program = request.program.as_ref().map(|program| {
            let instructions = program.iter().map(|&(code, jump_true, jump_false, operand)| {
                Instruction { code, jump_true, jump_false, operand }
            });
            let instructions: Vec<_> = instructions.collect();
            Program::new(&instructions).map_err(|fault| format!("the filter: {fault}"))
        });
        Ok(Selection {
            ports: request.ports.iter().copied().map(PortId).collect(),
            arriving: request.arriving,
            leaving: request.leaving,
            verdicts: verdicts(&request.labels),
            program: program.transpose()?,
            sample: request.sample,
            snap_length: request.snap_length as usize,
        })
    }
}

/// Checks the size of the rings and returns the size of the memory for all lanes.
fn ring_bytes(request: &Request, lanes: usize) -> Result<usize, String> {
    let (fewest, most) = (RING_BYTES.start() >> 20, RING_BYTES.end() >> 20);
    let bytes = request.ring_bytes;
    if !bytes.is_power_of_two() || !RING_BYTES.contains(&bytes) {
        return Err(format!(
            "a ring of {bytes} bytes is not allowed; use a power of two from {fewest} to {most} MiB"
        ));
    }
    let all = size(bytes).checked_mul(lanes).filter(|all| *all <= MOST_BYTES + MOST_BYTES / 64);
    all.ok_or_else(|| {
        let (each, most) = (bytes >> 20, MOST_BYTES >> 20);
        format!("{lanes} rings of {each} MiB exceed {most} MiB; use smaller rings or fewer lanes")
    })
}

fn verdicts(labels: &[Label]) -> VerdictSet {
    if labels.is_empty() {
        return VerdictSet::ALL;
    }
    labels.iter().fold(VerdictSet::NONE, |all, label| {
        all.union(match label {
            Label::Kernel => VerdictSet::KERNEL,
            Label::Drop => VerdictSet::DROP,
            Label::Reflect => VerdictSet::REFLECT,
            Label::Forward => VerdictSet::FORWARD,
            Label::Hold => VerdictSet::HOLD,
            Label::Invalid => VerdictSet::INVALID,
        })
    })
}

//! The program as an object of this version: loading it over new tables or over pinned ones.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use fastlane_steer::ProgramError;

use crate::encoding;
use crate::error::TierError;
use crate::homes::home_words;
use crate::pins::Pins;
use crate::slots::{first_slots, slots_for};
use crate::tables_reader::{NAMES, possible_cpus};
use crate::tier_outcome::TierOutcome;

/// Name of the program in `bpf/flows.bpf.c`.
pub(crate) const PROGRAM: &str = "fastlane_flows";

/// Action whose failure is reported.
pub(crate) const OPENING: &str = "creating the tables of the kernel tier";

/// Maximum number of attempts to load the program when a signal interrupts the kernel.
const MAX_LOADS: usize = 10;

/// Object with the program, `bpf/flows.bpf.o`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/flows.bpf.o");

/// Returns a number by which the program of this version is told from that of another one.
pub(crate) fn version() -> u64 {
    encoding::digest(OBJECT)
}

/// A loaded program.
pub(crate) struct LoadedProgram {
    pub(crate) programs: Ebpf,
    pub(crate) descriptor: OwnedFd,
}

impl LoadedProgram {
    /// Loads the program with room for `capacity` directions of flows, over the tables of `pins` or
    /// over new ones.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] if the kernel refuses.
    pub(crate) fn load(capacity: usize, pins: Option<&Pins>) -> Result<Self, TierError> {
        let cpus = possible_cpus().map_err(|error| ProgramError::system(OPENING, error))?;
        let size = |elements: usize| u32::try_from(elements).unwrap_or(u32::MAX);
        let slots = slots_for(capacity);
        let homes = size(home_words(first_slots(slots)));
        let first_slots = size(first_slots(slots));
        let states = size(capacity.saturating_mul(cpus as usize));
        let mut loader = EbpfLoader::new();
        loader.btf(None).map_max_entries("flows", size(slots)).map_max_entries("states", states);
        loader.map_max_entries("homes", homes);
        loader.map_max_entries("outcomes", cpus * TierOutcome::ALL.len() as u32);
        // The log of a program with a loop takes most of the time of its verification.
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        loader.override_global("slots", &first_slots, true).override_global("cpus", &cpus, true);
        for name in pins.map_or(&[][..], |_| &NAMES) {
            loader.map_pin_path(name, pins.map(|pins| pins.table(name)).unwrap_or_default());
        }
        let loaded = loader.load(OBJECT);
        let mut programs = loaded.map_err(|error| ProgramError::opening(OPENING, error))?;
        let descriptor = verify(&mut programs)?;
        Ok(Self { programs, descriptor })
    }
}

/// Loads the program, which the kernel verifies, and returns its descriptor.
fn verify(programs: &mut Ebpf) -> Result<OwnedFd, TierError> {
    let action = format!("loading {PROGRAM}");
    let failed = |error| ProgramError::new(action.as_str(), error);
    let program = programs.program_mut(PROGRAM).ok_or_else(|| {
        ProgramError::system(action.as_str(), io::Error::other("it is not in the object"))
    })?;
    let program: &mut Xdp = program.try_into().map_err(failed)?;
    let mut loaded = program.load();
    for _ in 1..MAX_LOADS {
        // A signal makes the verifier fail with EAGAIN, see crates/steer/src/program.rs. The loader
        // then tries again with a log of level 0, which the kernel refuses (EINVAL).
        let Err(aya::programs::ProgramError::LoadError { io_error, .. }) = &loaded else { break };
        if ![io::ErrorKind::WouldBlock, io::ErrorKind::InvalidInput].contains(&io_error.kind()) {
            break;
        }
        loaded = program.load();
    }
    loaded.map_err(failed)?;
    let descriptor = program.fd().map_err(failed)?.as_fd().try_clone_to_owned();
    Ok(descriptor.map_err(|error| ProgramError::system(action.as_str(), error))?)
}

//! The programs as an object of this version: loading them over new tables or over pinned ones.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::programs::{Program, ProgramError as LoadError, ProgramFd, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use fastlane_steer::ProgramError;

use crate::encoding;
use crate::error::TierError;
use crate::homes::home_words;
use crate::pins::Pins;
use crate::slots::{first_slots, slot_words};
use crate::tables_reader::{NAMES, possible_cpus};
use crate::tier_outcome::TierOutcome;
use crate::tier_programs::TierPrograms;

/// Name of the XDP program in `bpf/flows.bpf.c`.
pub(crate) const PROGRAM: &str = "fastlane_flows";
/// Name of the program for the ingress of an interface.
pub(crate) const INGRESS: &str = "fastlane_tcx";

/// Action whose failure is reported.
pub(crate) const OPENING: &str = "creating the tables of the kernel tier";

/// Maximum number of attempts to load the program when a signal interrupts the kernel.
const MAX_LOADS: usize = 10;

/// Object with the programs, `bpf/flows.bpf.o`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/flows.bpf.o");

/// Returns a number by which the programs of this version are told from those of another one.
pub(crate) fn version() -> u64 {
    encoding::digest(OBJECT)
}

/// Loaded programs.
pub(crate) struct LoadedPrograms {
    pub(crate) object: Ebpf,
    pub(crate) programs: TierPrograms,
}

impl LoadedPrograms {
    /// Loads the programs with room for `capacity` directions of flows, over the tables of `pins`
    /// or over new ones.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] if the kernel refuses.
    pub(crate) fn load(capacity: usize, pins: Option<&Pins>) -> Result<Self, TierError> {
        let cpus = possible_cpus().map_err(|error| ProgramError::system(OPENING, error))?;
        let size = |elements: usize| u32::try_from(elements).unwrap_or(u32::MAX);
        let first_slots = first_slots(capacity);
        let mut loader = EbpfLoader::new();
        loader.btf(None).map_max_entries("flows", size(capacity));
        loader.map_max_entries("places", size(slot_words(capacity)));
        loader.map_max_entries("homes", size(home_words(first_slots)));
        loader.map_max_entries("states", size(capacity.saturating_mul(cpus as usize)));
        loader.map_max_entries("outcomes", cpus * TierOutcome::ALL.len() as u32);
        // The log of a program with a loop takes most of the time of its verification. With the
        // statistics comes the reason of a refusal, and nothing else.
        loader.verifier_log_level(VerifierLogLevel::STATS);
        let (first_slots, mask) = (size(first_slots), encoding::entry_mask(capacity));
        loader.override_global("slots", &first_slots, true).override_global("cpus", &cpus, true);
        loader.override_global("entry_mask", &mask, true);
        for name in pins.map_or(&[][..], |_| &NAMES) {
            loader.map_pin_path(name, pins.map(|pins| pins.table(name)).unwrap_or_default());
        }
        let loaded = loader.load(OBJECT);
        let mut object = loaded.map_err(|error| ProgramError::opening(OPENING, error))?;
        let xdp = verify(&mut object, PROGRAM, Xdp::load, Xdp::fd)?;
        let ingress = verify(&mut object, INGRESS, SchedClassifier::load, SchedClassifier::fd)?;
        Ok(Self { object, programs: TierPrograms { xdp, ingress } })
    }
}

/// Loads a program, which the kernel verifies, and returns its descriptor.
fn verify<'a, P: 'a>(
    object: &'a mut Ebpf,
    name: &str,
    load: impl Fn(&mut P) -> Result<(), LoadError>,
    descriptor: impl Fn(&P) -> Result<&ProgramFd, LoadError>,
) -> Result<OwnedFd, TierError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = LoadError>,
{
    let action = format!("loading {name}");
    let failed = |error| ProgramError::new(action.as_str(), error);
    let program = object.program_mut(name).ok_or_else(|| {
        ProgramError::system(action.as_str(), io::Error::other("it is not in the object"))
    })?;
    let program: &mut P = program.try_into().map_err(failed)?;
    let mut loaded = load(program);
    for _ in 1..MAX_LOADS {
        // A signal makes the verifier fail with EAGAIN, see crates/steer/src/program.rs.
        let Err(LoadError::LoadError { io_error, .. }) = &loaded else { break };
        if io_error.kind() != io::ErrorKind::WouldBlock {
            break;
        }
        loaded = load(program);
    }
    loaded.map_err(failed)?;
    let descriptor = descriptor(program).map_err(failed)?.as_fd().try_clone_to_owned();
    Ok(descriptor.map_err(|error| ProgramError::system(action.as_str(), error))?)
}

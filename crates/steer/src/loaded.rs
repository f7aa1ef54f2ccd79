//! Programs that other processes have loaded.

use aya::programs::{loaded_links, loaded_programs};

/// Returns the name of the loaded eBPF program with this id; `None` without CAP_SYS_ADMIN, or if it
/// has none.
#[must_use]
pub fn program_name(id: u32) -> Option<String> {
    let info = loaded_programs().flatten().find(|info| info.id() == id)?;
    info.name_as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the ids of the BPF links that hold an attached eBPF program; none without CAP_SYS_ADMIN.
pub fn program_links(id: u32) -> impl Iterator<Item = u32> {
    loaded_links().flatten().filter(move |link| link.program_id() == id).map(|link| link.id())
}

/// Returns the id of the BPF link that holds an attached eBPF program; `None` without
/// CAP_SYS_ADMIN, or if it was attached without one.
#[must_use]
pub fn program_link(id: u32) -> Option<u32> {
    program_links(id).next()
}

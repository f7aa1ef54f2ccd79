//! Threads that DPDK knows: each has a cache of frames of its own.

use std::cell::Cell;
use std::thread::ThreadId;

use crate::plugin::Plugin;

thread_local! {
    /// Queues that this thread uses, and whether we made it known.
    static USES: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// Keeps the thread that made it known to DPDK until the last of them is dropped there.
pub(super) struct Registration {
    plugin: Plugin,
    thread: ThreadId,
}

impl Registration {
    /// Makes the calling thread known. Where DPDK knows 128 threads already it is not: then it
    /// does without the cache.
    pub(super) fn new(plugin: Plugin) -> Self {
        let (uses, ours) = USES.get();
        let ours = if uses == 0 { plugin.register_thread() } else { ours };
        USES.set((uses + 1, ours));
        Self { plugin, thread: std::thread::current().id() }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Elsewhere it says nothing about this thread; its own will end, known as it is.
        if std::thread::current().id() != self.thread {
            return;
        }
        let (uses, ours) = USES.get();
        USES.set((uses - 1, ours));
        if uses == 1 && ours {
            self.plugin.unregister_thread();
        }
    }
}

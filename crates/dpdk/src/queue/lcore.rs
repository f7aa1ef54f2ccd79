//! Registration of lane threads with DPDK. A registered thread has a cache of frames of its own.

use std::cell::Cell;
use std::thread::ThreadId;

use crate::plugin::Plugin;

thread_local! {
    /// Number of queues that this thread uses, and true if this module registered the thread.
    static USES: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// Keeps its thread registered with DPDK until the last value of the thread is dropped there.
pub(super) struct Registration {
    plugin: Plugin,
    thread: ThreadId,
}

impl Registration {
    /// Registers the calling thread. DPDK registers at most 128 threads; a further one works
    /// without the cache.
    pub(super) fn new(plugin: Plugin) -> Self {
        let (uses, ours) = USES.get();
        let ours = if uses == 0 { plugin.register_thread() } else { ours };
        USES.set((uses + 1, ours));
        Self { plugin, thread: std::thread::current().id() }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Another thread cannot unregister this one; it stays registered until it ends.
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

//! The plugin: finding and opening it, and all calls into it.
#![allow(unsafe_code, reason = "the functions of a shared object")]

mod abi;

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use fastlane_core::{Burst, Packet, PortId, RegionId, Run};

pub(crate) use abi::{
    DeviceConfig, DeviceInfo, DeviceLosses, FlowRule, QueueLosses, SendResult, Table, fields,
    token_base,
};
use abi::{ErrorText, MemoryHandle, QueueHandle, check_header};

use crate::Error;

/// File name of the plugin.
const FILE: &str = "libfastlane_dpdk.so";
/// Addition to messages of a privileged program.
const IGNORED: &str = " (FASTLANE_DPDK_PLUGIN and the program's own folder are ignored, because it \
                       has file capabilities or is set-user-ID; use `AmbientCapabilities` of \
                       systemd instead)";
/// Environment variable with the path of the plugin.
const VARIABLE: &str = "FASTLANE_DPDK_PLUGIN";
/// Folders of an installed plugin.
const INSTALLED: [&str; 2] = ["/usr/lib/fastlane", "/usr/local/lib/fastlane"];

/// The plugin, which stays open until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    table: &'static Table,
}

/// A mempool of DPDK.
#[derive(Debug)]
pub(crate) struct Memory(NonNull<MemoryHandle>);

// SAFETY: a mempool may be used by several threads at once (its default operations are
// multi-producer, multi-consumer); this is its address.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

/// A queue of the plugin, which belongs to one thread at a time.
pub(crate) struct RawQueue {
    plugin: Plugin,
    handle: NonNull<QueueHandle>,
}

// SAFETY: the plugin's queue is plain memory that nobody else has. The device's queue behind it may
// be used by any thread, one at a time.
unsafe impl Send for RawQueue {}

/// Returns the result of a call, or the plugin's error text if the result is negative.
fn checked(call: impl FnOnce(*mut ErrorText) -> c_int) -> Result<c_int, String> {
    let mut error = ErrorText { text: [0; 240] };
    let result = call(&mut error);
    if result >= 0 { Ok(result) } else { Err(text(&error.text)) }
}

/// Returns the text of a C array up to its zero.
pub(crate) fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> =
        characters.iter().take_while(|character| **character != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "the text contains a zero byte".to_owned())
}

impl Plugin {
    /// Returns the plugin; the first call opens it.
    pub(crate) fn load() -> Result<Self, Error> {
        static LOADED: OnceLock<Plugin> = OnceLock::new();
        if let Some(plugin) = LOADED.get() {
            return Ok(*plugin);
        }
        let is_privileged = is_privileged();
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let candidates = candidates(named, is_privileged);
        let Some(path) = candidates.iter().find(|path| path.is_file()) else {
            let searched: Vec<_> =
                candidates.iter().map(|path| path.display().to_string()).collect();
            let note = if is_privileged { IGNORED } else { "" };
            return Err(Error::NoPlugin { searched: format!("{}{note}", searched.join(", ")) });
        };
        let plugin = Self::open(path)?;
        Ok(*LOADED.get_or_init(|| plugin))
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let broken = |reason| Error::Broken { path: path.to_owned(), reason };
        let name = path.to_str().and_then(|path| CString::new(path).ok());
        let name = name.ok_or_else(|| broken("its path is not valid UTF-8".to_owned()))?;
        // SAFETY: opening runs the constructors of the plugin and of DPDK's libraries, which the
        // configuration requests by naming DPDK. The library is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(broken(loader_error()));
        }
        // SAFETY: the library was just opened and is never closed.
        let symbol = unsafe { libc::dlsym(library, c"fastlane_dpdk".as_ptr()) };
        let other = |reason| Error::OtherVersion { path: path.to_owned(), reason };
        // SAFETY: the symbol, which is never unmapped, is a table that begins with two words: the
        // version and the size.
        let Some(head) = (unsafe { symbol.cast::<[u32; 2]>().as_ref() }) else {
            return Err(broken("it has no symbol fastlane_dpdk".to_owned()));
        };
        if let Some(reason) = check_header(*head) {
            return Err(other(reason));
        }
        // SAFETY: version and size are those of `Table`, so all of it exists.
        let table = unsafe { symbol.cast::<Table>().as_ref() };
        let table = table.ok_or_else(|| broken("its table is missing".to_owned()))?;
        table.check().map_or(Ok(Self { table }), |reason| Err(other(reason)))
    }

    /// Returns the version of DPDK.
    pub(crate) fn dpdk_version(self) -> String {
        // SAFETY: the function returns a static string.
        unsafe { CStr::from_ptr((self.table.dpdk_version)()) }.to_string_lossy().into_owned()
    }

    /// Starts EAL. The calling thread becomes its main thread and must stay.
    pub(crate) fn init_eal(self, arguments: &[String]) -> Result<(), String> {
        // EAL keeps pointers to the strings and permutes the list, so both are leaked.
        let arguments: Vec<*mut c_char> = arguments
            .iter()
            .map(|argument| c_string(argument).map(CString::into_raw))
            .collect::<Result<_, _>>()?;
        let count = arguments.len() as c_int;
        let list = [arguments, vec![std::ptr::null_mut()]].concat().leak();
        // SAFETY: `count` strings and a null pointer, which are never freed. The environment calls
        // this once.
        checked(|error| unsafe { (self.table.eal_init)(count, list.as_mut_ptr(), error) }).map(drop)
    }

    /// Ends EAL. Must be called in the thread that started it.
    pub(crate) fn clean_up_eal(self) {
        // SAFETY: EAL was started, and every device and memory keeps the environment alive.
        unsafe { (self.table.eal_cleanup)() };
    }

    /// Registers the calling thread with DPDK. Returns false if it was registered already or cannot
    /// be.
    pub(crate) fn register_thread(self) -> bool {
        // SAFETY: EAL runs, because the queue that calls this keeps it alive.
        unsafe { (self.table.thread_register)() == 1 }
    }

    /// Unregisters the calling thread, which must be registered.
    pub(crate) fn unregister_thread(self) {
        // SAFETY: EAL runs, because the registration of the thread keeps the environment alive.
        unsafe { (self.table.thread_unregister)() };
    }

    pub(crate) fn create_memory(
        self,
        name: &str,
        frames: u32,
        cache: u32,
        room: u32,
        socket: i32,
    ) -> Result<Memory, String> {
        let name = c_string(name)?;
        let mut memory = std::ptr::null_mut();
        // SAFETY: the name is a C string, and the result is a local variable.
        checked(|error| unsafe {
            let name = name.as_ptr();
            (self.table.memory_create)(name, frames, cache, room, socket, &mut memory, error)
        })?;
        NonNull::new(memory).map(Memory).ok_or_else(|| "no mempool was created".to_owned())
    }

    /// Returns the number of frames in packets, devices and rings.
    pub(crate) fn memory_in_use(self, memory: &Memory) -> usize {
        // SAFETY: the mempool exists until it is freed, when its owner is dropped.
        unsafe { (self.table.memory_in_use)(memory.0.as_ptr()) as usize }
    }

    /// Frees a memory. No frame of it may be in use.
    pub(crate) fn free_memory(self, memory: &Memory) {
        // SAFETY: the owner calls this once, when it is dropped and no frame of the memory is in
        // use.
        unsafe { (self.table.memory_free)(memory.0.as_ptr()) };
    }

    /// Returns the octets of memory that an IOMMU maps for each device.
    pub(crate) fn mapped_memory(self) -> u64 {
        // SAFETY: the function has no precondition once EAL has started, as it has if there is a
        // device.
        unsafe { (self.table.mapped_memory)() }
    }

    /// Opens a device; returns its port number.
    pub(crate) fn probe(self, device: &str) -> Result<u16, String> {
        let device = c_string(device)?;
        // SAFETY: the argument is a C string.
        let port = checked(|error| unsafe { (self.table.probe)(device.as_ptr(), error) })?;
        u16::try_from(port).map_err(|_| format!("port {port}"))
    }

    pub(crate) fn device_info(self, port: u16) -> Result<DeviceInfo, String> {
        let mut info = DeviceInfo {
            driver: [0; 40],
            mac: [0; 6],
            mtu: 0,
            min_mtu: 0,
            max_mtu: 0,
            max_receive_queues: 0,
            max_transmit_queues: 0,
            socket: 0,
            checksums: 0,
            rss: 0,
            reserved: [0; 2],
        };
        // SAFETY: the result is a local variable; DPDK checks the number.
        checked(|error| unsafe { (self.table.device_info)(port, &mut info, error) })?;
        Ok(info)
    }

    pub(crate) fn configure(self, port: u16, settings: &mut DeviceConfig) -> Result<(), String> {
        // SAFETY: the plugin may read and write the configuration; DPDK checks the number.
        checked(|error| unsafe { (self.table.configure)(port, settings, error) }).map(drop)
    }

    /// Starts a device whose queues receive into these memories, one per queue.
    pub(crate) fn start_device(
        self,
        port: u16,
        settings: &DeviceConfig,
        memories: &[&Memory],
    ) -> Result<(), String> {
        assert_eq!(memories.len(), usize::from(settings.queues), "a memory for each queue");
        let memories: Vec<_> = memories.iter().map(|memory| memory.0.as_ptr()).collect();
        // SAFETY: there are as many mempools as queues, and the device keeps them alive.
        checked(|error| unsafe {
            (self.table.device_start)(port, settings, memories.as_ptr(), error)
        })
        .map(drop)
    }

    pub(crate) fn link_up(self, port: u16) -> bool {
        // SAFETY: DPDK checks the number.
        unsafe { (self.table.link_up)(port) == 1 }
    }

    pub(crate) fn set_link(self, port: u16, up: bool) -> bool {
        // SAFETY: DPDK checks the number.
        unsafe { (self.table.set_link)(port, up.into()) == 0 }
    }

    /// Returns the descriptor that becomes readable when a device has been removed, or `None` if
    /// EAL has not started.
    pub(crate) fn removal_events(self) -> Option<BorrowedFd<'static>> {
        // SAFETY: the function has no precondition.
        let descriptor = unsafe { (self.table.removal_events)() };
        // SAFETY: the plugin never closes the descriptor.
        (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Returns true if a device was removed since it was probed.
    pub(crate) fn is_removed(self, port: u16) -> bool {
        // SAFETY: the function checks the number, and reads an atomic flag.
        unsafe { (self.table.is_removed)(port) == 1 }
    }

    /// Returns the losses of a device, or `None` if it does not report them now.
    pub(crate) fn losses(self, port: u16) -> Option<DeviceLosses> {
        let mut losses = DeviceLosses::default();
        // SAFETY: the result is a local variable; DPDK checks the number.
        let result = unsafe { (self.table.losses)(port, &mut losses) };
        (result == 0).then_some(losses)
    }

    /// Installs the rules in the device: all of them, or none.
    pub(crate) fn steer(self, port: u16, queues: u16, rules: &[FlowRule]) -> Result<(), String> {
        let count = rules.len() as u32;
        // SAFETY: there are `count` rules; DPDK checks the number.
        checked(|error| unsafe { (self.table.steer)(port, queues, rules.as_ptr(), count, error) })
            .map(drop)
    }

    /// Stops and removes a device with this number of queues.
    pub(crate) fn remove_device(self, port: u16, queues: u16) {
        // SAFETY: the owner calls this once, when it is dropped; every queue of the device holds
        // the owner.
        unsafe { (self.table.device_remove)(port, queues) };
    }

    /// Creates two ports connected by rings of `size` packets.
    pub(crate) fn ring_pair(self, name: &str, queues: u16, size: u32) -> Result<[u16; 2], String> {
        let name = c_string(name)?;
        let mut ports = [0; 2];
        // SAFETY: the name is a C string, and the result is a local variable.
        checked(|error| unsafe {
            (self.table.ring_pair)(name.as_ptr(), queues, size, &mut ports, error)
        })?;
        Ok(ports)
    }

    /// Frees the frames with these addresses, and empties the list.
    #[inline]
    pub(crate) fn release(self, frames: &mut Vec<u64>) {
        // SAFETY: each address is that of the mbuf of a frame that was in a packet of the caller's
        // lane and was released, once.
        unsafe { (self.table.release)(frames.as_mut_ptr(), frames.len() as u32) };
        frames.clear();
    }
}

/// Configuration of one queue.
pub(crate) struct QueueConfig<'a> {
    pub(crate) port: u16,
    pub(crate) number: u16,
    pub(crate) packet_port: PortId,
    pub(crate) region: RegionId,
    pub(crate) max_length: u32,
    pub(crate) checksums: bool,
    pub(crate) steered: bool,
    pub(crate) memory: &'a Memory,
}

impl RawQueue {
    /// Creates a queue of a started device.
    pub(crate) fn new(plugin: Plugin, config: &QueueConfig<'_>) -> Result<Self, String> {
        let mut queue = std::ptr::null_mut();
        // SAFETY: the device has started and has this queue. The memory is the one that the queue
        // receives into, and the result is a local variable.
        unsafe {
            (plugin.table.queue_create)(
                config.port,
                config.number,
                config.packet_port.0,
                token_base(config.region),
                config.max_length,
                config.checksums.into(),
                config.steered.into(),
                config.memory.0.as_ptr(),
                &mut queue,
            )
        };
        let handle = NonNull::new(queue).ok_or_else(|| "no memory for a queue".to_owned())?;
        Ok(Self { plugin, handle })
    }

    /// Appends the packets that have arrived; returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, burst: &mut Burst) -> usize {
        let spare = burst.spare();
        let slots = spare.as_mut_ptr().cast::<Packet>();
        // SAFETY: there is memory for that number of packets, and nobody else uses the queue.
        let received =
            unsafe { (self.plugin.table.receive)(self.handle.as_ptr(), slots, spare.len() as u32) };
        let count = received.packets as usize;
        // SAFETY: the plugin has written `count` packets, at most the number passed. Each is in an
        // mbuf just received from the device, with the memory region that the lane's pool has
        // registered. Each mbuf has METADATA_LENGTH bytes before its headroom, or was dropped.
        unsafe { burst.assume_received(count, received.bytes) };
        count
    }

    /// Appends empty packets in new frames; returns their number.
    pub(crate) fn alloc_packets(&mut self, burst: &mut Burst) -> usize {
        let spare = burst.spare();
        let slots = spare.as_mut_ptr().cast::<Packet>();
        // SAFETY: as in `receive`.
        let count = unsafe {
            (self.plugin.table.alloc_packets)(self.handle.as_ptr(), slots, spare.len() as u32)
                as usize
        };
        // SAFETY: as in `receive`, of an mbuf that was just allocated.
        unsafe { burst.assume_received(count, 0) };
        count
    }

    /// Sends packets from the front of the slice.
    #[inline]
    pub(crate) fn transmit(&mut self, packets: &mut [Packet]) -> SendResult {
        let count = packets.len() as u32;
        // SAFETY: the packets are borrowed exclusively. Those of this queue's region hold mbufs,
        // and others are not touched. The plugin leaves each packet that it takes as `take_frame`
        // would.
        unsafe { (self.plugin.table.transmit)(self.handle.as_ptr(), packets.as_mut_ptr(), count) }
    }

    /// Sends packets from the front of a run, and forgets them.
    #[inline]
    pub(crate) fn transmit_run(&mut self, run: &mut Run<'_>) -> SendResult {
        let (packets, count) = (run.as_mut_ptr(), run.len() as u32);
        // SAFETY: as in `transmit`, but the plugin leaves the packets that it takes as they are.
        // Nobody sees them again.
        let result =
            unsafe { (self.plugin.table.transmit_run)(self.handle.as_ptr(), packets, count) };
        run.forget_first(result.taken as usize);
        result
    }

    pub(crate) fn losses(&self) -> QueueLosses {
        let mut losses = QueueLosses::default();
        // SAFETY: the result is a local variable.
        unsafe { (self.plugin.table.queue_losses)(self.handle.as_ptr(), &mut losses) };
        losses
    }

    /// Returns a duplicate of the descriptor of the queue's interrupt, or `None` if the device has
    /// none.
    pub(crate) fn interrupt(&self) -> Option<OwnedFd> {
        // SAFETY: the queue's device has started.
        let descriptor = unsafe { (self.plugin.table.interrupt)(self.handle.as_ptr()) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the device keeps the descriptor open until it is removed, which `self` prevents.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        borrowed.try_clone_to_owned().ok()
    }

    /// Enables the interrupt; returns true if packets have arrived already.
    pub(crate) fn arm(&mut self) -> bool {
        // SAFETY: the queue's device has started.
        unsafe { (self.plugin.table.arm)(self.handle.as_ptr()) != 0 }
    }

    /// Disables the interrupt.
    pub(crate) fn disarm(&mut self) {
        // SAFETY: the queue's device has started.
        unsafe { (self.plugin.table.disarm)(self.handle.as_ptr()) };
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: created by `queue_create`, and freed only here.
        unsafe { (self.plugin.table.queue_free)(self.handle.as_ptr()) };
    }
}

/// Returns true if the process has privileges that its caller may lack: it was started with file
/// capabilities or set-user-ID (`AT_SECURE`, getauxval(3)). Ambient capabilities do not count.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: getauxval has no precondition.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns a warning if the caller of a privileged program names a plugin, which is ignored.
pub(crate) fn ignored_variable() -> Option<String> {
    let is_ignored = is_privileged() && std::env::var_os(VARIABLE).is_some();
    is_ignored.then(|| format!("the plugin is the installed one{IGNORED}"))
}

/// Returns the possible paths of the plugin, in the order of the search. Whoever may start a
/// privileged program must not choose the code that it loads, so only the system's folders count.
fn candidates(named: Option<PathBuf>, is_privileged: bool) -> Vec<PathBuf> {
    let installed = INSTALLED.into_iter().map(|folder| Path::new(folder).join(FILE));
    if is_privileged {
        return installed.collect();
    }
    if let Some(named) = named {
        return vec![named];
    }
    // The folder above is for test programs, which are one folder deeper.
    let program = std::env::current_exe().ok();
    let beside = program.iter().flat_map(|path| path.ancestors().skip(1).take(2));
    let beside = beside.map(Path::to_owned);
    beside.map(|folder| folder.join(FILE)).chain(installed).collect()
}

fn loader_error() -> String {
    // SAFETY: the function returns null or a string that is valid until the next call in this
    // thread.
    let message = unsafe { libc::dlerror().as_ref().map(|message| CStr::from_ptr(message)) };
    message.map_or("no reason given".to_owned(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;

//! The plugin: finding it, opening it, and every call into it.
#![allow(unsafe_code, reason = "the functions of a shared object")]

mod table;

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use fastlane_core::{Burst, Packet, PortId, RegionId};

use table::{ErrorText, MemoryHandle, QueueHandle, fault_of_head};
pub(crate) use table::{
    Facts, FlatRule, Losses, Outcome, QueueLosses, Settings, Table, fields, token_base,
};

use crate::Error;

/// Its name.
const FILE: &str = "libfastlane_dpdk.so";
/// The variable that names it.
const VARIABLE: &str = "FASTLANE_DPDK_PLUGIN";
/// Where it is when it is installed.
const INSTALLED: [&str; 2] = ["/usr/lib/fastlane", "/usr/local/lib/fastlane"];

/// The plugin, open for as long as the process lives.
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    table: &'static Table,
}

/// A mempool of DPDK's.
#[derive(Debug)]
pub(crate) struct Memory(NonNull<MemoryHandle>);

// SAFETY: a mempool may be used by several threads at once (its default operations are
// multi-producer, multi-consumer); this is its address.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A queue of the plugin's, which belongs to one thread at a time.
pub(crate) struct RawQueue {
    plugin: Plugin,
    handle: NonNull<QueueHandle>,
}

// SAFETY: the plugin's queue is plain memory that nobody else has, and the queue of the device
// behind it may be used by any thread, one at a time.
unsafe impl Send for RawQueue {}

/// What a call returned, with what the plugin wrote when it is negative.
fn checked(call: impl FnOnce(*mut ErrorText) -> c_int) -> Result<c_int, String> {
    let mut error = ErrorText { text: [0; 240] };
    let result = call(&mut error);
    if result >= 0 { Ok(result) } else { Err(text(&error.text)) }
}

/// The text of a C array, as far as its zero.
pub(crate) fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> =
        characters.iter().take_while(|character| **character != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "the text holds a zero byte".to_owned())
}

impl Plugin {
    /// Opens the plugin, the first time that it is asked for.
    pub(crate) fn load() -> Result<Self, Error> {
        static LOADED: OnceLock<Plugin> = OnceLock::new();
        if let Some(plugin) = LOADED.get() {
            return Ok(*plugin);
        }
        let places = places(std::env::var_os(VARIABLE).map(PathBuf::from));
        let Some(path) = places.iter().find(|path| path.is_file()) else {
            let searched: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
            return Err(Error::NoPlugin { searched: searched.join(", ") });
        };
        let plugin = Self::open(path)?;
        Ok(*LOADED.get_or_init(|| plugin))
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let broken = |reason| Error::Broken { path: path.to_owned(), reason };
        let name = path.to_str().and_then(|path| CString::new(path).ok());
        let name = name.ok_or_else(|| broken("its path is not a text".to_owned()))?;
        // SAFETY: opening runs the constructors of the plugin and of DPDK's libraries, which is
        // what naming DPDK in the configuration asks for. It is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(broken(loader_error()));
        }
        // SAFETY: the library was just opened and is never closed.
        let symbol = unsafe { libc::dlsym(library, c"fastlane_dpdk".as_ptr()) };
        let other = |reason| Error::OtherVersion { path: path.to_owned(), reason };
        // SAFETY: the symbol, which is never unmapped, is a table, which begins with two words: the
        // version and the size.
        let Some(head) = (unsafe { symbol.cast::<[u32; 2]>().as_ref() }) else {
            return Err(broken("it has no symbol fastlane_dpdk".to_owned()));
        };
        if let Some(reason) = fault_of_head(*head) {
            return Err(other(reason));
        }
        // SAFETY: version and size are those of `Table`, so the whole of it is there.
        let table = unsafe { symbol.cast::<Table>().as_ref() };
        let table = table.ok_or_else(|| broken("its table is gone".to_owned()))?;
        table.fault().map_or(Ok(Self { table }), |reason| Err(other(reason)))
    }

    /// The version of DPDK.
    pub(crate) fn dpdk_version(self) -> String {
        // SAFETY: it returns a static string.
        unsafe { CStr::from_ptr((self.table.dpdk_version)()) }.to_string_lossy().into_owned()
    }

    /// Starts DPDK's environment. The thread must stay.
    pub(crate) fn start(self, arguments: &[String]) -> Result<(), String> {
        // EAL keeps pointers into them and permutes the list: both stay for ever.
        let arguments: Vec<*mut c_char> = arguments
            .iter()
            .map(|argument| c_string(argument).map(CString::into_raw))
            .collect::<Result<_, _>>()?;
        let count = arguments.len() as c_int;
        let list = [arguments, vec![std::ptr::null_mut()]].concat().leak();
        // SAFETY: `count` strings and a null pointer, all of which stay; the environment calls
        // this once.
        checked(|error| unsafe { (self.table.start)(count, list.as_mut_ptr(), error) }).map(drop)
    }

    /// Ends the environment, in the thread that started it.
    pub(crate) fn stop(self) {
        // SAFETY: the environment was started, and every device and memory keeps it alive.
        unsafe { (self.table.stop)() };
    }

    /// Makes the calling thread known to DPDK; false when it was already, or cannot be.
    pub(crate) fn register_thread(self) -> bool {
        // SAFETY: the environment runs, as the queue that asks for this keeps it alive.
        unsafe { (self.table.thread_register)() == 1 }
    }

    /// The opposite, for a thread that was registered.
    pub(crate) fn unregister_thread(self) {
        // SAFETY: as above.
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
        // SAFETY: the name is a C string, and there is a place for the result.
        checked(|error| unsafe {
            let name = name.as_ptr();
            (self.table.memory_create)(name, frames, cache, room, socket, &mut memory, error)
        })?;
        NonNull::new(memory).map(Memory).ok_or_else(|| "no mempool was made".to_owned())
    }

    /// Frames that are not free: in packets, in devices, in rings.
    pub(crate) fn memory_in_use(self, memory: &Memory) -> usize {
        // SAFETY: it exists until it is freed, which consumes it.
        unsafe { (self.table.memory_in_use)(memory.0.as_ptr()) as usize }
    }

    /// Frees a memory of which no frame is in use.
    pub(crate) fn free_memory(self, memory: &Memory) {
        // SAFETY: its owner calls this once, as it ends, when no frame of it is in use.
        unsafe { (self.table.memory_free)(memory.0.as_ptr()) };
    }

    /// The number of the port of a device.
    pub(crate) fn probe(self, device: &str) -> Result<u16, String> {
        let device = c_string(device)?;
        // SAFETY: a C string.
        let port = checked(|error| unsafe { (self.table.probe)(device.as_ptr(), error) })?;
        u16::try_from(port).map_err(|_| format!("port {port}"))
    }

    pub(crate) fn facts(self, port: u16) -> Result<Facts, String> {
        let mut facts = Facts {
            driver: [0; 40],
            mac: [0; 6],
            mtu: 0,
            least_mtu: 0,
            most_mtu: 0,
            most_receive_queues: 0,
            most_transmit_queues: 0,
            socket: 0,
            checksums: 0,
            spreads: 0,
            reserved: [0; 2],
        };
        // SAFETY: there is a place for the result; DPDK checks the number.
        checked(|error| unsafe { (self.table.facts)(port, &mut facts, error) })?;
        Ok(facts)
    }

    pub(crate) fn configure(self, port: u16, settings: &mut Settings) -> Result<(), String> {
        // SAFETY: the settings are the plugin's to read and write; DPDK checks the number.
        checked(|error| unsafe { (self.table.configure)(port, settings, error) }).map(drop)
    }

    /// Starts a device, whose queues receive into these memories, one for each queue.
    pub(crate) fn begin(
        self,
        port: u16,
        settings: &Settings,
        memories: &[&Memory],
    ) -> Result<(), String> {
        assert_eq!(memories.len(), usize::from(settings.queues), "a memory for each queue");
        let memories: Vec<_> = memories.iter().map(|memory| memory.0.as_ptr()).collect();
        // SAFETY: as many mempools as queues, which the device keeps alive.
        checked(|error| unsafe { (self.table.begin)(port, settings, memories.as_ptr(), error) })
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

    /// All zero when the device does not say.
    pub(crate) fn losses(self, port: u16) -> Losses {
        let mut losses = Losses::default();
        // SAFETY: there is a place for the result; DPDK checks the number.
        let result = unsafe { (self.table.losses)(port, &mut losses) };
        if result == 0 { losses } else { Losses::default() }
    }

    /// Gives the rules to the device.
    pub(crate) fn steer(self, port: u16, queues: u16, rules: &[FlatRule]) -> Result<(), String> {
        let count = rules.len() as u32;
        // SAFETY: as many rules as said; DPDK checks the number.
        checked(|error| unsafe { (self.table.steer)(port, queues, rules.as_ptr(), count, error) })
            .map(drop)
    }

    /// Stops and removes a device of which so many queues run.
    pub(crate) fn remove(self, port: u16, queues: u16) {
        // SAFETY: its owner calls this once, as it ends; every queue of it keeps the owner.
        unsafe { (self.table.remove)(port, queues) };
    }

    /// Two ports joined by rings of `size` packets.
    pub(crate) fn ring_pair(self, name: &str, queues: u16, size: u32) -> Result<[u16; 2], String> {
        let name = c_string(name)?;
        let mut ports = [0; 2];
        // SAFETY: a C string, and a place for the result.
        checked(|error| unsafe {
            (self.table.ring_pair)(name.as_ptr(), queues, size, &mut ports, error)
        })?;
        Ok(ports)
    }

    /// Frees the frames with these names, and empties the list.
    #[inline]
    pub(crate) fn release(self, frames: &mut Vec<u64>) {
        // SAFETY: the names are of frames that were packets of the caller's lane and are none any
        // more, each once; the name of a frame of DPDK's is the address of its mbuf.
        unsafe { (self.table.release)(frames.as_mut_ptr(), frames.len() as u32) };
        frames.clear();
    }
}

/// Where a queue is, and what it is told about itself.
pub(crate) struct QueueParts<'a> {
    pub(crate) port: u16,
    pub(crate) number: u16,
    pub(crate) packet_port: PortId,
    pub(crate) home: RegionId,
    pub(crate) longest: u32,
    pub(crate) checksums: bool,
    pub(crate) steered: bool,
    pub(crate) memory: &'a Memory,
}

impl RawQueue {
    /// A queue of a device that has begun.
    pub(crate) fn new(plugin: Plugin, parts: &QueueParts<'_>) -> Result<Self, String> {
        let mut queue = std::ptr::null_mut();
        // SAFETY: the device has begun and has this queue; the memory is the one that the queue
        // receives into; there is a place for the result.
        unsafe {
            (plugin.table.queue_create)(
                parts.port,
                parts.number,
                parts.packet_port.0,
                token_base(parts.home),
                parts.longest,
                parts.checksums.into(),
                parts.steered.into(),
                parts.memory.0.as_ptr(),
                &mut queue,
            )
        };
        let handle = NonNull::new(queue).ok_or_else(|| "no memory for a queue".to_owned())?;
        Ok(Self { plugin, handle })
    }

    /// Appends what has arrived, and returns how many that are.
    #[inline]
    pub(crate) fn receive(&mut self, burst: &mut Burst) -> usize {
        let spare = burst.spare();
        let places = spare.as_mut_ptr().cast::<Packet>();
        // SAFETY: as many places as said; the queue is ours alone.
        let received = unsafe {
            (self.plugin.table.receive)(self.handle.as_ptr(), places, spare.len() as u32)
        };
        let count = received.packets as usize;
        // SAFETY: the plugin has written `count` packets, no more than it was told, each in an mbuf
        // that it has just got from the device and with the home that the lane's pool has admitted;
        // an mbuf has METADATA_LENGTH bytes before the head room or was dropped.
        unsafe { burst.assume_received(count, received.bytes) };
        count
    }

    /// The same for empty packets in fresh frames.
    pub(crate) fn alloc_packets(&mut self, burst: &mut Burst) -> usize {
        let spare = burst.spare();
        let places = spare.as_mut_ptr().cast::<Packet>();
        // SAFETY: as in `receive`.
        let count = unsafe {
            (self.plugin.table.blank)(self.handle.as_ptr(), places, spare.len() as u32) as usize
        };
        // SAFETY: as in `receive`, of an mbuf that was just allocated.
        unsafe { burst.assume_received(count, 0) };
        count
    }

    /// Sends packets from the front of the slice.
    #[inline]
    pub(crate) fn transmit(&mut self, packets: &mut [Packet]) -> Outcome {
        let count = packets.len() as u32;
        // SAFETY: the packets are ours; those of this queue's home hold mbufs, and others are left
        // alone. Of those that are taken the plugin leaves what `PacketOwnership::take_frame` would.
        unsafe { (self.plugin.table.transmit)(self.handle.as_ptr(), packets.as_mut_ptr(), count) }
    }

    pub(crate) fn losses(&self) -> QueueLosses {
        let mut losses = QueueLosses::default();
        // SAFETY: there is a place for the result.
        unsafe { (self.plugin.table.queue_losses)(self.handle.as_ptr(), &mut losses) };
        losses
    }

    /// A descriptor of our own for the interrupt of the queue, if it can be waited for.
    pub(crate) fn interrupt(&self) -> Option<OwnedFd> {
        // SAFETY: the queue's device has begun.
        let descriptor = unsafe { (self.plugin.table.interrupt)(self.handle.as_ptr()) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the device keeps it open until it is removed, and is not, as `self` is borrowed.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        borrowed.try_clone_to_owned().ok()
    }

    /// Turns the interrupt on; true when something has arrived already.
    pub(crate) fn arm(&mut self) -> bool {
        // SAFETY: the queue's device has begun.
        unsafe { (self.plugin.table.arm)(self.handle.as_ptr()) != 0 }
    }

    /// Turns it off.
    pub(crate) fn disarm(&mut self) {
        // SAFETY: the queue's device has begun.
        unsafe { (self.plugin.table.disarm)(self.handle.as_ptr()) };
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: made by `queue_create`, freed here only.
        unsafe { (self.plugin.table.queue_free)(self.handle.as_ptr()) };
    }
}

/// Where the plugin may be, in the order in which it is looked for.
fn places(named: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named];
    }
    // The one above is for test programs, which lie one folder deeper.
    let program = std::env::current_exe().ok();
    let beside = program.iter().flat_map(|path| path.ancestors().skip(1).take(2));
    let beside = beside.map(Path::to_owned);
    let installed = INSTALLED.into_iter().map(PathBuf::from);
    beside.chain(installed).map(|folder| folder.join(FILE)).collect()
}

fn loader_error() -> String {
    // SAFETY: it returns null or a string that stays until the next call in this thread.
    let message = unsafe { libc::dlerror().as_ref().map(|message| CStr::from_ptr(message)) };
    message.map_or("no reason given".to_owned(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;

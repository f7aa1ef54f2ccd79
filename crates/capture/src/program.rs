//! Filter programs in classic BPF.
//!
//! The machine is that of McCanne and Jacobson, "The BSD Packet Filter" (USENIX Winter 1993), as
//! libpcap's `pcap_offline_filter` runs it: an accumulator, an index register and 16 words of
//! memory. A load beyond the end of the packet ends the program without a match. Linux describes
//! the same instructions in Documentation/networking/filter.rst; its extensions are not supported.

use std::fmt;

/// Maximum number of instructions of a program (`BPF_MAXINSNS` of Linux).
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Number of words of memory.
const WORDS: usize = 16;
/// First offset that does not address the packet but an extension (`SKF_LL_OFF` of Linux).
const EXTENSIONS: u32 = 0xffe0_0000;

/// Instruction as compilers write it (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Number of instructions to skip if the comparison is true.
    pub jump_true: u8,
    /// Number of instructions to skip if the comparison is false.
    pub jump_false: u8,
    /// Operand of the instruction.
    pub operand: u32,
}

/// Reason why a program is refused. Numbers are indices of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// The program has no instruction, or more than [`MAX_INSTRUCTIONS`].
    Length(usize),
    /// The operation code is unknown.
    Unknown(usize),
    /// The jump leads out of the program.
    Jump(usize),
    /// The instruction divides by zero, or addresses memory beyond the 16 words.
    Operand(usize),
    /// The instruction loads an extension of Linux instead of packet bytes, which `inbound` and
    /// `ifindex` need.
    Extension(usize),
    /// The last instruction does not return.
    End,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(count) => {
                write!(formatter, "{count} instructions, but a program has 1 to {MAX_INSTRUCTIONS}")
            }
            Self::Unknown(at) => write!(formatter, "instruction {at} is not one of classic BPF"),
            Self::Jump(at) => write!(formatter, "instruction {at} jumps out of the program"),
            Self::Operand(at) => write!(formatter, "instruction {at} has an impossible operand"),
            Self::Extension(at) => write!(
                formatter,
                "instruction {at} uses an extension of Linux (`inbound`, `ifindex` and the like); \
                 write the filter without it"
            ),
            Self::End => formatter.write_str("the last instruction does not return"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Word,
    Half,
    Byte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// Second operand: a constant or the index register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Constant(u32),
    Index,
}

/// Checked instruction: jumps lead forward and stay inside the program, memory indices are below
/// [`WORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    LoadConstant(u32),
    LoadLength,
    LoadMemory(usize),
    LoadPacket(Size, u32),
    LoadPacketIndexed(Size, u32),
    IndexConstant(u32),
    IndexLength,
    IndexMemory(usize),
    /// Index = four times the lower half of a byte: the length of an IPv4 header.
    IndexHeaderLength(u32),
    Store(usize),
    StoreIndex(usize),
    Compute(Arithmetic, Source),
    Negate,
    Jump(usize),
    Compare {
        comparison: Comparison,
        source: Source,
        holds: u8,
        fails: u8,
    },
    Return(u32),
    ReturnAccumulator,
    ToIndex,
    ToAccumulator,
}

/// Checked program. It only jumps forward, so it ends for every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Step>);

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// Returns an error if the program could leave its instructions or its memory, or has an
    /// unknown instruction.
    pub fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        let count = instructions.len();
        if count == 0 || count > MAX_INSTRUCTIONS {
            return Err(ProgramError::Length(count));
        }
        let steps = instructions.iter().enumerate().map(|(at, instruction)| {
            let step = step(*instruction).ok_or(ProgramError::Unknown(at))?;
            let inside = |skip: usize| skip < count - at - 1;
            match step {
                Step::Jump(skip) if !inside(skip) => Err(ProgramError::Jump(at)),
                Step::Compare { holds, fails, .. }
                    if !inside(holds.into()) || !inside(fails.into()) =>
                {
                    Err(ProgramError::Jump(at))
                }
                Step::LoadMemory(word)
                | Step::IndexMemory(word)
                | Step::Store(word)
                | Step::StoreIndex(word)
                    if word >= WORDS =>
                {
                    Err(ProgramError::Operand(at))
                }
                Step::LoadPacket(_, EXTENSIONS..) => Err(ProgramError::Extension(at)),
                Step::Compute(Arithmetic::Divide | Arithmetic::Modulo, Source::Constant(0)) => {
                    Err(ProgramError::Operand(at))
                }
                step => Ok(step),
            }
        });
        let steps: Vec<_> = steps.collect::<Result<_, _>>()?;
        match steps.last() {
            Some(Step::Return(_) | Step::ReturnAccumulator) => Ok(Self(steps)),
            _ => Err(ProgramError::End),
        }
    }

    /// Returns true if the program accepts a packet.
    #[must_use]
    pub fn accepts(&self, packet: &[u8]) -> bool {
        self.run(packet).is_some_and(|bytes| bytes > 0)
    }

    /// Runs the program and returns its result, or `None` if it loaded bytes beyond the packet.
    fn run(&self, packet: &[u8]) -> Option<u32> {
        let length = packet.len() as u32;
        let (mut accumulator, mut index, mut memory) = (0_u32, 0_u32, [0_u32; WORDS]);
        let mut next = 0;
        loop {
            let step = *self.0.get(next)?;
            next += 1;
            match step {
                Step::LoadConstant(value) => accumulator = value,
                Step::LoadLength => accumulator = length,
                Step::LoadMemory(word) => accumulator = *memory.get(word)?,
                Step::LoadPacket(size, at) => accumulator = load(packet, size, at as usize)?,
                Step::LoadPacketIndexed(size, at) => {
                    let at = (index as usize).checked_add(at as usize)?;
                    accumulator = load(packet, size, at)?;
                }
                Step::IndexConstant(value) => index = value,
                Step::IndexLength => index = length,
                Step::IndexMemory(word) => index = *memory.get(word)?,
                Step::IndexHeaderLength(at) => {
                    index = u32::from(*packet.get(at as usize)? & 0xf) * 4;
                }
                Step::Store(word) => *memory.get_mut(word)? = accumulator,
                Step::StoreIndex(word) => *memory.get_mut(word)? = index,
                Step::Compute(operation, source) => {
                    accumulator = compute(operation, accumulator, source.value(index))?;
                }
                Step::Negate => accumulator = accumulator.wrapping_neg(),
                Step::Jump(skip) => next += skip,
                Step::Compare { comparison, source, holds, fails } => {
                    let operand = source.value(index);
                    let result = match comparison {
                        Comparison::Equal => accumulator == operand,
                        Comparison::Greater => accumulator > operand,
                        Comparison::GreaterOrEqual => accumulator >= operand,
                        Comparison::AnyBit => accumulator & operand != 0,
                    };
                    next += usize::from(if result { holds } else { fails });
                }
                Step::Return(bytes) => return Some(bytes),
                Step::ReturnAccumulator => return Some(accumulator),
                Step::ToIndex => index = accumulator,
                Step::ToAccumulator => accumulator = index,
            }
        }
    }
}

impl Source {
    #[inline]
    fn value(self, index: u32) -> u32 {
        match self {
            Self::Constant(value) => value,
            Self::Index => index,
        }
    }
}

#[inline]
fn load(packet: &[u8], size: Size, at: usize) -> Option<u32> {
    let bytes = packet.get(at..)?;
    Some(match size {
        Size::Word => u32::from_be_bytes(*bytes.first_chunk()?),
        Size::Half => u32::from(u16::from_be_bytes(*bytes.first_chunk()?)),
        Size::Byte => u32::from(*bytes.first()?),
    })
}

#[inline]
fn compute(operation: Arithmetic, left: u32, right: u32) -> Option<u32> {
    Some(match operation {
        Arithmetic::Add => left.wrapping_add(right),
        Arithmetic::Subtract => left.wrapping_sub(right),
        Arithmetic::Multiply => left.wrapping_mul(right),
        Arithmetic::Divide => left.checked_div(right)?,
        Arithmetic::Modulo => left.checked_rem(right)?,
        Arithmetic::And => left & right,
        Arithmetic::Or => left | right,
        Arithmetic::Xor => left ^ right,
        Arithmetic::Left => left.checked_shl(right).unwrap_or(0),
        Arithmetic::Right => left.checked_shr(right).unwrap_or(0),
    })
}

/// Decodes an instruction. The numbers are those of `linux/bpf_common.h`: the class in the lower
/// three bits, then size and mode, or operation and source.
fn step(instruction: Instruction) -> Option<Step> {
    let Instruction { code, jump_true: holds, jump_false: fails, operand } = instruction;
    let word = operand as usize;
    Some(match code {
        0x00 => Step::LoadConstant(operand),
        0x80 => Step::LoadLength,
        0x60 => Step::LoadMemory(word),
        0x20 | 0x28 | 0x30 => Step::LoadPacket(size(code)?, operand),
        0x40 | 0x48 | 0x50 => Step::LoadPacketIndexed(size(code)?, operand),
        0x01 => Step::IndexConstant(operand),
        0x81 => Step::IndexLength,
        0x61 => Step::IndexMemory(word),
        0xb1 => Step::IndexHeaderLength(operand),
        0x02 => Step::Store(word),
        0x03 => Step::StoreIndex(word),
        0x84 => Step::Negate,
        0x05 => Step::Jump(word),
        0x06 => Step::Return(operand),
        0x16 => Step::ReturnAccumulator,
        0x07 => Step::ToIndex,
        0x87 => Step::ToAccumulator,
        _ => {
            let source = if code & 0x08 == 0 { Source::Constant(operand) } else { Source::Index };
            match code & !0x08 & 0xff07 {
                0x04 => Step::Compute(arithmetic(code)?, source),
                0x05 => Step::Compare { comparison: comparison(code)?, source, holds, fails },
                _ => return None,
            }
        }
    })
}

fn size(code: u16) -> Option<Size> {
    [Size::Word, Size::Half, Size::Byte].get(usize::from(code >> 3 & 3)).copied()
}

fn arithmetic(code: u16) -> Option<Arithmetic> {
    Some(match code & 0xf0 {
        0x00 => Arithmetic::Add,
        0x10 => Arithmetic::Subtract,
        0x20 => Arithmetic::Multiply,
        0x30 => Arithmetic::Divide,
        0x40 => Arithmetic::Or,
        0x50 => Arithmetic::And,
        0x60 => Arithmetic::Left,
        0x70 => Arithmetic::Right,
        0x90 => Arithmetic::Modulo,
        0xa0 => Arithmetic::Xor,
        _ => return None,
    })
}

fn comparison(code: u16) -> Option<Comparison> {
    Some(match code & 0xf0 {
        0x10 => Comparison::Equal,
        0x20 => Comparison::Greater,
        0x30 => Comparison::GreaterOrEqual,
        0x40 => Comparison::AnyBit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

//! Assembler of classic BPF (McCanne and Jacobson, "The BSD Packet Filter", USENIX Winter 1993):
//! instructions whose jumps name labels.

use fastlane::capture::MAX_INSTRUCTIONS;

/// Operation codes of `linux/bpf_common.h`.
mod code {
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const LOAD_HALF: u16 = 0x28;
    pub(super) const LOAD_BYTE: u16 = 0x30;
    pub(super) const INDEXED: u16 = 0x20;
    pub(super) const INDEX_HEADER_LENGTH: u16 = 0xb1;
    pub(super) const AND: u16 = 0x54;
    pub(super) const JUMP_IF_EQUAL: u16 = 0x15;
    pub(super) const JUMP_IF_GREATER: u16 = 0x25;
    pub(super) const JUMP_IF_AT_LEAST: u16 = 0x35;
    pub(super) const JUMP_IF_ANY_BIT: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
}

/// Instruction of a capture request: code, jump if true, jump if false, operand.
pub(super) type Instruction = (u16, u8, u8, u32);

/// Position in a program, which a jump may name before it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Load of a part of the packet. `Indexed` counts from the index register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Byte(u32),
    Half(u32),
    Word(u32),
    IndexedHalf(u32),
    IndexedWord(u32),
}

/// Comparison of the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equal(u32),
    AtLeast(u32),
    AtMost(u32),
    NoBitOf(u32),
}

/// Program that is being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    /// Instructions whose jump, taken if it is true or false, leads to a label.
    jumps: Vec<(usize, bool, Label)>,
    /// Instruction of each label, once it is placed.
    labels: Vec<Option<usize>>,
}

impl Assembler {
    /// Creates a label.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label before the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    fn push(&mut self, code: u16, operand: u32) {
        self.instructions.push((code, 0, 0, operand));
    }

    /// Loads the accumulator.
    pub(super) fn load(&mut self, load: Load) {
        let (code, offset) = match load {
            Load::Byte(offset) => (code::LOAD_BYTE, offset),
            Load::Half(offset) => (code::LOAD_HALF, offset),
            Load::Word(offset) => (code::LOAD_WORD, offset),
            Load::IndexedHalf(offset) => (code::LOAD_HALF + code::INDEXED, offset),
            Load::IndexedWord(offset) => (code::LOAD_WORD + code::INDEXED, offset),
        };
        self.push(code, offset);
    }

    /// Loads the index register with four times the lower half of a byte: the length of an IPv4
    /// header.
    pub(super) fn index_header_length(&mut self, offset: u32) {
        self.push(code::INDEX_HEADER_LENGTH, offset);
    }

    /// Masks the accumulator.
    pub(super) fn mask(&mut self, mask: u32) {
        if mask != u32::MAX {
            self.push(code::AND, mask);
        }
    }

    /// Jumps to a label unless the accumulator satisfies a condition.
    pub(super) fn unless(&mut self, condition: Condition, otherwise: Label) {
        let (code, operand, is_taken_if) = match condition {
            Condition::Equal(value) => (code::JUMP_IF_EQUAL, value, false),
            Condition::AtLeast(value) => (code::JUMP_IF_AT_LEAST, value, false),
            Condition::AtMost(value) => (code::JUMP_IF_GREATER, value, true),
            Condition::NoBitOf(bits) => (code::JUMP_IF_ANY_BIT, bits, true),
        };
        self.jumps.push((self.instructions.len(), is_taken_if, otherwise));
        self.push(code, operand);
    }

    /// Ends the program: accepts or rejects the packet.
    pub(super) fn end(&mut self, is_accepted: bool) {
        self.push(code::RETURN, if is_accepted { u32::MAX } else { 0 });
    }

    /// Returns the program; `None` if it is too long, or a jump leads too far.
    pub(super) fn assemble(mut self) -> Option<Vec<Instruction>> {
        for (at, is_taken_if, label) in self.jumps {
            let target = self.labels.get(label.0).copied().flatten()?;
            let distance = u8::try_from(target.checked_sub(at + 1)?).ok()?;
            let (_, if_true, if_false, _) = &mut self.instructions[at];
            *(if is_taken_if { if_true } else { if_false }) = distance;
        }
        (self.instructions.len() <= MAX_INSTRUCTIONS).then_some(self.instructions)
    }
}

//! Fuzzes capture filters: runs arbitrary programs on arbitrary frames. The input is the number of
//! instructions (one byte), the instructions (8 bytes each), and the frame.
#![no_main]

use fastlane_capture::{Instruction, Program};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else { return };
    let Some((program, frame)) = rest.split_at_checked(8 * usize::from(*count)) else { return };
    let (instructions, _) = program.as_chunks::<8>();
    let instructions = instructions.iter().map(|&[low, high, jump_true, jump_false, a, b, c, d]| {
        let code = u16::from_le_bytes([low, high]);
        Instruction { code, jump_true, jump_false, operand: u32::from_le_bytes([a, b, c, d]) }
    });
    if let Ok(program) = Program::new(&instructions.collect::<Vec<_>>()) {
        let _ = program.accepts(frame);
    }
});

use proptest::prelude::*;

use super::*;

fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

const ACCEPT: Instruction =
    Instruction { code: 0x06, jump_true: 0, jump_false: 0, operand: 1 << 18 };
/// Accepts when the accumulator is not zero.
const ACCUMULATOR: Instruction =
    Instruction { code: 0x16, jump_true: 0, jump_false: 0, operand: 0 };

/// Returns the accumulator at the end, or `None` if the program ended before.
fn result(instructions: &[Instruction], packet: &[u8]) -> Option<u32> {
    Program::new(&[instructions, &[ACCUMULATOR]].concat()).unwrap().run(packet)
}

#[test]
fn programs_that_could_leave_their_bounds_are_refused() {
    let new = |instructions: &[Instruction]| Program::new(instructions);
    assert_eq!(new(&[]), Err(ProgramError::Length(0)));
    assert_eq!(new(&[ACCEPT; 4097]), Err(ProgramError::Length(4097)));
    assert!(new(&[ACCEPT; 4096]).is_ok());
    assert_eq!(new(&[instruction(0x05, 0, 0, 1), ACCEPT]), Err(ProgramError::Jump(0)));
    assert_eq!(new(&[instruction(0x05, 0, 0, u32::MAX), ACCEPT]), Err(ProgramError::Jump(0)));
    assert_eq!(new(&[instruction(0x15, 0, 1, 0), ACCEPT]), Err(ProgramError::Jump(0)));
    assert_eq!(new(&[instruction(0x15, 255, 0, 0), ACCEPT]), Err(ProgramError::Jump(0)));
    assert!(new(&[instruction(0x15, 0, 0, 0), ACCEPT]).is_ok());
    assert_eq!(new(&[instruction(0x00, 0, 0, 0)]), Err(ProgramError::End));
    for memory in [0x60, 0x61, 0x02, 0x03] {
        assert_eq!(new(&[instruction(memory, 0, 0, 16), ACCEPT]), Err(ProgramError::Operand(0)));
        assert!(new(&[instruction(memory, 0, 0, 15), ACCEPT]).is_ok());
    }
    for division in [0x34, 0x94] {
        assert_eq!(new(&[instruction(division, 0, 0, 0), ACCEPT]), Err(ProgramError::Operand(0)));
    }
    let extension = instruction(0x28, 0, 0, 0xffff_f004);
    assert_eq!(new(&[extension, ACCEPT]), Err(ProgramError::Extension(0)));
    for unknown in [0x38, 0x0e, 0x26_00, 0x55, 0xd4, 0xffff, 0x100, 0x8c_00] {
        assert_eq!(new(&[instruction(unknown, 0, 0, 0), ACCEPT]), Err(ProgramError::Unknown(0)));
    }
}

#[test]
fn what_is_not_there_ends_without_a_match() {
    let packet = [1, 2, 3, 4, 5];
    assert_eq!(result(&[instruction(0x20, 0, 0, 1)], &packet), Some(0x0203_0405));
    assert_eq!(result(&[instruction(0x20, 0, 0, 2)], &packet), None);
    assert_eq!(result(&[instruction(0x28, 0, 0, 3)], &packet), Some(0x0405));
    assert_eq!(result(&[instruction(0x28, 0, 0, 4)], &packet), None);
    assert_eq!(result(&[instruction(0x30, 0, 0, 4)], &packet), Some(5));
    for code in [0x20, 0x28, 0x30, 0xb1] {
        assert_eq!(result(&[instruction(code, 0, 0, 5)], &packet), None);
        assert_eq!(result(&[instruction(code, 0, 0, u32::MAX >> 1)], &packet), None);
    }
    let indexed =
        |index, at| result(&[instruction(0x01, 0, 0, index), instruction(0x50, 0, 0, at)], &packet);
    assert_eq!(indexed(3, 1), Some(5));
    assert_eq!(indexed(3, 2), None);
    assert_eq!(indexed(u32::MAX, 2), None, "it does not begin again at 0");
}

#[test]
fn arithmetic_is_that_of_libpcap() {
    let compute = |code: u16, left, right| {
        let [load, index] = [instruction(0x00, 0, 0, left), instruction(0x01, 0, 0, right)];
        result(&[load, index, instruction(code | 0x08, 0, 0, 0)], &[])
    };
    for (code, left, right, expected) in [
        (0x04, u32::MAX, 2, Some(1)),
        (0x14, 1, 2, Some(u32::MAX)),
        (0x24, 1 << 31, 2, Some(0)),
        (0x34, 7, 2, Some(3)),
        (0x34, 7, 0, None),
        (0x94, 7, 4, Some(3)),
        (0x94, 7, 0, None),
        (0x44, 5, 2, Some(7)),
        (0x54, 7, 2, Some(2)),
        (0xa4, 7, 2, Some(5)),
        (0x64, 1, 31, Some(1 << 31)),
        (0x64, 1, 32, Some(0)),
        (0x74, 1 << 31, 31, Some(1)),
        (0x74, 1, 99, Some(0)),
    ] {
        assert_eq!(compute(code, left, right), expected, "{code:#x} {left} {right}");
    }
    assert_eq!(result(&[instruction(0x00, 0, 0, 1), instruction(0x84, 0, 0, 0)], &[]), Some(!0));
    let header = result(&[instruction(0xb1, 0, 0, 0), instruction(0x87, 0, 0, 0)], &[0x4f]);
    assert_eq!(header, Some(60));
    assert_eq!(result(&[instruction(0x80, 0, 0, 0)], &[0; 99]), Some(99));
}

fn any_instruction() -> impl Strategy<Value = Instruction> {
    let codes: Vec<u16> =
        (0..256).filter(|code| step(instruction(*code, 0, 0, 1)).is_some()).collect();
    assert!(codes.len() > 40);
    let code = prop_oneof![9 => proptest::sample::select(codes), 1 => any::<u16>()];
    let operand = prop_oneof![0..20_u32, any::<u32>()];
    (code, 0..4_u8, 0..4_u8, operand).prop_map(|(code, jump_true, jump_false, operand)| {
        instruction(code, jump_true, jump_false, operand)
    })
}

proptest! {
    #[test]
    fn every_program_is_refused_or_ends(
        mut instructions in proptest::collection::vec(any_instruction(), 1..60),
        packet in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        instructions.extend([ACCEPT; 4]);
        if let Ok(program) = Program::new(&instructions) {
            let _ = program.accepts(&packet);
        }
    }
}

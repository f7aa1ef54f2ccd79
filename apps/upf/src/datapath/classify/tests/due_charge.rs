//! Tests of the charge that is due when a packet leaves.

use super::super::*;

#[test]
fn all_of_it_comes_back() {
    for direction in [Direction::Uplink, Direction::Downlink] {
        let simple = Charge::new(u32::MAX, 1500, direction);
        assert_eq!((simple.version(), simple.length()), (u32::MAX, 1500));
        assert_eq!(
            (simple.direction(), simple.is_simple(), simple.block()),
            (direction, true, None)
        );
        let rule = simple.by_path(255).by_rule(u32::MAX, u16::MAX);
        assert_eq!((rule.version(), rule.length()), (u32::MAX, 1500));
        assert_eq!((rule.direction(), rule.is_simple()), (direction, false));
        assert_eq!(
            (rule.block(), rule.rule(), rule.path()),
            (Some(u32::MAX as usize - 1), 65535, 255)
        );
        let other = rule.by_path(7).by_rule(1, 2);
        assert_eq!((other.block(), other.rule(), other.path()), (Some(0), 2, 7));
        assert_eq!(other.direction(), direction);
    }
}

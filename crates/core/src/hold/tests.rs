use super::*;

#[test]
fn without_limits_nothing_is_held() {
    let mut hold = Hold::new(HoldLimits::default(), 2048);
    assert_eq!((hold.request(1), hold.discard(1), hold.count(1)), (0, 0, 0));
    assert_eq!((hold.len(), hold.drop_all(), hold.has_requests()), (0, 0, false));
}

//! What of the calls needs no socket.

use super::*;

#[test]
fn a_backlog_is_cut_at_the_administrators_limit() {
    for (backlog, longest) in [(0, 0), (1, 1), (128, 128), (129, 128), (i32::MAX, 128), (-1, 128), (i32::MIN, 128)] {
        assert_eq!(longest_queue(backlog, 128), longest, "{backlog}");
    }
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    assert_eq!(somaxconn().to_string(), limit.trim());
}

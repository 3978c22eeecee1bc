use crate::{Code, check};

const ROOT: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n\
                    [[queue]]\nname = \"0\"\non = \"lan\"\n";

/// Codes and lines of the diagnostics of `ROOT` with `queues`.
fn found(queues: &str) -> Vec<(Code, u32)> {
    let checked = check(&format!("{ROOT}{queues}"), "test");
    checked.diagnostics.iter().map(|wrong| (wrong.code, wrong.line().unwrap_or(0))).collect()
}

fn queue(name: usize, keys: &str) -> String {
    format!("[[queue]]\nname = \"{name}\"\n{keys}\n")
}

#[test]
fn a_tree_of_ten_thousand_levels_is_one_error() {
    let chain: String = (1..10_000).map(|level| queue(level, &format!("in = \"{}\"", level - 1))).collect();
    // The ninth queue, of three lines each.
    assert_eq!(found(&chain), [(Code::BadQueueTree, 6 + 8 * 3)]);
    let backwards: String =
        (1..10_000).rev().map(|level| queue(level, &format!("in = \"{}\"", level - 1))).collect();
    assert_eq!(found(&backwards).len(), 1);
    let cycle: String =
        (1..10_000).map(|node| queue(node, &format!("in = \"{}\"", node % 9_999 + 1))).collect();
    assert_eq!(found(&cycle), [(Code::BadQueueTree, 6 + 3)]);
}

#[test]
fn eight_levels_are_none() {
    let chain: String = (1..8).map(|level| queue(level, &format!("in = \"{}\"", level - 1))).collect();
    assert_eq!(found(&chain), []);
}

#[test]
fn code_points_that_are_all_named_leave_no_rest() {
    let all = |points: std::ops::Range<u8>| format!("in = \"0\"\nphb = {:?}", points.collect::<Vec<_>>());
    let both = queue(1, &all(0..32)) + &queue(2, &all(32..64));
    assert_eq!(found(&both), []);
    let fewer = queue(1, &all(0..32)) + &queue(2, &all(32..63));
    assert_eq!(found(&fewer), [(Code::NoQueue, 5)]);
}

#[test]
fn what_could_not_be_read_is_not_missed() {
    let rest = queue(1, "in = \"0\"\nphb = \"ef\"") + &queue(2, "in = \"0\"\nphb = \"eff\"");
    assert_eq!(found(&rest), [(Code::BadDscp, 14)]);
    let parent = queue(1, "in = \"0\"\nscheduler = \"wfq\"") + "[[queue]]\nname = 3\nin = \"1\"\n";
    assert_eq!(found(&parent), [(config::Code::WrongType.into(), 12)]);
}

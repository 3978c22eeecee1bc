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

/// A packet out of a tunnel keeps the tree of the interface that it came by in a byte.
#[test]
fn two_hundred_and_fifty_five_trees_of_what_comes_are_beside_tunnels() {
    let vlans = |count: usize| -> String {
        (1..=count)
            .map(|id| {
                let tree =
                    format!("[[queue]]\nname = \"from-{id}\"\nfrom = \"v{id}\"\nrate = \"1 Mbit/s\"\n");
                format!("[interface.v{id}]\nzone = \"lan\"\nvlan = {id}\nparent = \"lan\"\n{tree}")
            })
            .collect()
    };
    const TUNNEL: &str = "[interface.t]\nzone = \"vpn\"\n[interface.t.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nkeys = \"ike\"\n";
    // That nothing is routed by the tunnel is no matter here.
    let trees = |found: Vec<(Code, u32)>| -> Vec<(Code, u32)> {
        found.into_iter().filter(|(code, _)| *code == Code::BadQueueTree).collect()
    };
    let tunnel_and = |count| trees(found(&format!("{TUNNEL}{}", vlans(count))));
    assert_eq!((found(&vlans(256)), tunnel_and(255)), (vec![], vec![]));
    // Behind the first tree, of three lines, and the tunnel, of six: eight lines each, the key in the seventh.
    assert_eq!(tunnel_and(256), [(Code::BadQueueTree, 6 + 6 + 255 * 8 + 7)]);
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

/// Each number out of its range is one error at its line, with a hint; those at its ends are none.
#[test]
fn numbers_out_of_range_are_refused_with_a_hint() {
    let checked = |keys: &str| {
        let phb = if keys.starts_with("phb") { "" } else { "phb = \"ef\"\n" };
        let leaf = queue(1, &format!("in = \"0\"\n{phb}{keys}"));
        check(&format!("{ROOT}{leaf}{}", queue(2, "in = \"0\"")), "test").diagnostics
    };
    for keys in [
        "rate = \"0 bit/s\"",
        "rate = \"10.1 Tbit/s\"",
        "guarantee = \"0 bit/s\"",
        "burst = 1\nrate = \"1 Mbit/s\"",
        "limit-bytes = 1",
        "weight = 0",
        "weight = 65536",
        "weight = 4294967296",
        "weight = -1",
        "priority = 8",
        "limit = 0",
        "limit = 4294967296",
        "per = \"source\"\ninstances = 0",
        "per = \"source\"\ninstances = 1048577",
        "scheduler = \"fq\"\nflows = 3",
        "per = \"source\"\ninstances = 16385\nscheduler = \"fq\"",
        "per = \"source\"\ninstances = 257\nscheduler = \"fq\"\nflows = 65536",
        "scheduler = \"fq\"\nquantum = 63",
        "drop = \"red\"\nred = \"20-20 10%\"",
        "drop = \"red\"\nred = \"20-60 0%\"",
        "drop = \"codel\"\ntarget = \"0s\"",
        "drop = \"codel\"\ninterval = \"11s\"",
        "drop = \"dualpi2\"\nstep = \"0s\"",
        "drop = \"dualpi2\"\ncoupling = 0",
        "drop = \"dualpi2\"\ncoupling = 17",
        "drop = \"dualpi2\"\necn = true",
        "drop = \"dualpi2\"\nscheduler = \"fq\"",
        "drop = \"codel\"\nstep = \"1ms\"",
        "drop = \"pie\"\ncoupling = 3",
        "drop = \"pie\"\ninterval = \"1ms\"",
        "phb = \"ef5\"",
    ] {
        let found = checked(keys);
        assert_eq!(found.len(), 1, "{keys}: {found:?}");
        // Name, `in` and `phb` come before.
        assert!(found[0].line().is_some_and(|line| line >= 10), "{keys}: {found:?}");
        assert!(found[0].hint.is_some(), "{keys}: {found:?}");
    }
    for keys in [
        "rate = \"10 Tbit/s\"",
        "rate = \"1 bit/s\"",
        "burst = 1538\nrate = \"1 Mbit/s\"",
        "weight = 65535\npriority = 7\nlimit = 1048576",
        "per = \"source\"\ninstances = 1048576",
        "per = \"source\"\ninstances = 16384\nscheduler = \"fq\"",
        "drop = \"dualpi2\"\nstep = \"1ns\"\ncoupling = 16\ntarget = \"10s\"\ninterval = \"1ns\"",
        "phb = [\"be\", \"le\", \"af11\", \"af43\", \"cs0\", \"cs7\"]",
    ] {
        assert_eq!(checked(keys), [], "{keys}");
    }
}

/// Each per-hop behaviour has a name, of a leaf's packets, of a class's and of a mark.
#[test]
fn behaviours_have_names_everywhere() {
    let classes = (1..=4).flat_map(|class| (1..=3).map(move |precedence| format!("af{class}{precedence}")));
    let selectors = (0..=7).map(|selector| format!("cs{selector}"));
    for name in classes.chain(selectors).chain(["ef", "be", "le"].map(str::to_owned)) {
        let leaf = queue(1, &format!("in = \"0\"\nphb = \"{name}\"")) + &queue(2, "in = \"0\"");
        let class =
            format!("[[class]]\nname = \"c\"\nfrom = \"lan\"\ndscp = \"{name}\"\nmark = \"{name}\"\n");
        assert_eq!(found(&(leaf + &class)), [], "{name}");
    }
    for class in 1..=4 {
        let leaf = queue(1, &format!("in = \"0\"\nphb = \"af{class}\"")) + &queue(2, "in = \"0\"");
        assert_eq!(found(&leaf), [], "af{class}");
    }
}

//! Objects, devices and filters of all forms.

use super::*;

const TREE: &str = "tc qdisc add dev e root handle 1: htb default 20\n\
    tc class add dev e parent 1: classid 1:1 htb rate 10mbit\n\
    tc class add dev e parent 1:1 classid 1:10 htb rate 5mbit\n\
    tc class add dev e parent 1:1 classid 1:20 htb rate 5mbit\n";

/// Conditions of the class that a filter makes, as they are printed.
fn conditions(filter: &str) -> Result<String, Vec<String>> {
    let import = import(&format!("{TREE}tc filter add dev e parent 1: {filter} flowid 1:10"));
    let missing: Vec<String> = import.untranslated.iter().map(|missing| missing.why.to_string()).collect();
    if import.untranslated.iter().any(|missing| missing.why != Why::NoFilter) {
        return Err(missing);
    }
    let text = import.policy.to_string();
    let class = text.split("[[class]]").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let lines = class
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("name") && !line.starts_with("to "));
    Ok(lines.collect::<Vec<_>>().join("; "))
}

#[test]
fn filters_say_what_they_match() {
    for (filter, printed) in [
        (
            "protocol ip u32 match ip protocol 6 0xff match ip dport 80 0xffff",
            "family = \"ipv4\"; protocol = \"tcp\"; dport = 80",
        ),
        (
            "protocol ip u32 match ip protocol 17 0xff match ip sport 1024 0xfc00",
            "family = \"ipv4\"; protocol = \"udp\"; sport = \"1024-2047\"",
        ),
        (
            "protocol ip u32 match u16 0x0050 0xffff at 22 match u8 6 0xff at 9",
            "family = \"ipv4\"; protocol = \"tcp\"; dport = 80",
        ),
        (
            "protocol ip u32 match u32 0x00000050 0x0000ffff at 20 match u8 0x06 0xff at 9",
            "family = \"ipv4\"; protocol = \"tcp\"; dport = 80",
        ),
        ("protocol ip prio 5 u32 match ip src 10.1.2.3", "source = \"10.1.2.3\""),
        (
            "protocol ip u32 match ip dst 10.1.0.0/16 match ip tos 0x10 0xff",
            "destination = \"10.1.0.0/16\"; dscp = 4",
        ),
        ("protocol ipv6 u32 match ip6 dst 2001:db8::/32", "destination = \"2001:db8::/32\""),
        ("protocol ipv6 u32 match ip6 priority 0xb8 0xfc", "family = \"ipv6\"; dscp = \"ef\""),
        (
            "protocol ip u32 match ip protocol 1 0xff match ip icmp_type 8 0xff",
            "family = \"ipv4\"; protocol = \"icmp\"; icmp = \"echo-request\"",
        ),
        (
            "protocol ip u32 match ip protocol 6 0xff match u8 0x02 0x12 at 33",
            "family = \"ipv4\"; protocol = \"tcp\"",
        ),
        // It needs no condition, and nothing is left for the default.
        ("protocol all u32 match u32 0 0", "source = \"0.0.0.0\""),
        ("matchall", "source = \"0.0.0.0\""),
        ("protocol ip matchall", "family = \"ipv4\""),
        (
            "protocol ip flower ip_proto tcp dst_port 5000-5010 src_ip 10.0.0.0/8",
            "source = \"10.0.0.0/8\"; protocol = \"tcp\"; dport = \"5000-5010\"",
        ),
        ("protocol ip flower ip_tos b8/fc", "family = \"ipv4\"; dscp = \"ef\""),
        (
            "protocol ipv6 flower dst_ip 2001:db8::1 ip_proto udp dst_port 53",
            "destination = \"2001:db8::1\"; protocol = \"udp\"; dport = 53",
        ),
    ] {
        let found = conditions(filter);
        let starts = found.as_ref().is_ok_and(|found| {
            found.starts_with(printed) && (found == printed || printed.ends_with("tcp\""))
        });
        assert!(starts, "{filter}: {found:?}");
    }
}

#[test]
fn filters_that_cannot_be_translated_are_listed() {
    for (filter, reason) in [
        ("protocol ip handle 6 fw", "packets have no marks"),
        ("protocol ip u32 match mark 1 0xff", "packets have no marks"),
        ("protocol ip u32 match tcp dst 80 0xffff", "`match tcp`"),
        ("protocol ip u32 match u16 0 0xffc0 at 2", "`match 00000000/0000ffc0 at 0`"),
        ("protocol ip u32 match u32 0 1 at nexthdr+8", "`at nexthdr+8`"),
        ("protocol ip u32 match ip src 10.0.0.0/8 link 2:", "`link 2:`"),
        ("protocol ip u32 ht 2:: match ip src 10.0.0.0/8", "`ht 2::`"),
        ("protocol ip u32 match u32 0xff00 0xff00 at -4", "`at -4`"),
        ("protocol arp u32 match u32 0 0", "`protocol arp`"),
        ("protocol ip basic match 'meta(priority eq 6)'", "`basic`"),
        ("protocol ip flower ct_state +trk", "`ct_state +trk`"),
        ("protocol ip flower dst_ip 2001:db8::1 skip_sw", "`skip_sw`"),
        ("protocol ip chain 5 matchall", "`chain 5`"),
        ("protocol ip u32 match ip src 10.0.0.300", "`10.0.0.300`"),
        ("protocol ip u32 match ip src 10.0.0.0/-1", "`10.0.0.0/-1`"),
        ("protocol ip u32 match ip dport 99999 0xffff", "`1869f/ffff`"),
        ("protocol ip u32 match ip tos 1 1", "`tos 0x01/0x01`"),
        ("protocol ip matchall action drop", "`action drop`"),
        ("protocol ip matchall action mirred egress mirror dev b", "`mirred mirror`"),
        ("protocol ip matchall action skbedit priority 1:10", "`action skbedit`"),
    ] {
        let found = conditions(filter);
        let all = found.expect_err(filter);
        // The class that it led to is there all the same, to be filled in.
        assert!(all.iter().any(|why| why.contains(reason)), "{filter}: {all:?}");
        assert!(
            all.iter().any(|why| why.contains("fill in")) || reason.contains("ip src"),
            "{filter}: {all:?}"
        );
    }
}

#[test]
fn filters_come_in_the_order_of_their_preferences() {
    // Each without one comes before those that are there.
    let policy = whole(&format!(
        "{TREE}tc filter add dev e parent 1: protocol ip u32 match ip dport 1 0xffff flowid 1:10\n\
         tc filter add dev e parent 1: protocol ip u32 match ip dport 2 0xffff flowid 1:10\n\
         tc filter add dev e parent 1: protocol ip prio 7 u32 match ip dport 3 0xffff flowid 1:10\n\
         tc filter add dev e parent 1: protocol ip prio 7 u32 match ip dport 4 0xffff flowid 1:10\n\
         tc filter add dev e parent 1: protocol ip prio 6 u32 match ip dport 5 0xffff flowid 1:10"
    ));
    let ports: Vec<u16> = policy.classes.iter().map(|class| class.conditions.dports[0].first).collect();
    assert_eq!(ports, [5, 3, 4, 2, 1]);
    assert!(
        missing(&format!(
            "{TREE}tc filter add dev e parent 1: protocol ip prio 1 u32 match ip dport 1 0xffff flowid 1:10\n\
         tc filter add dev e parent 1: protocol ipv6 prio 1 u32 match ip6 dport 1 0xffff flowid 1:10"
        ))[0]
            .contains("the kernel would refuse it")
    );
}

#[test]
fn filters_of_an_inner_class_come_after_its_own() {
    let policy = whole(
        "tc qdisc add dev e root handle 1: htb default 30\n\
         tc class add dev e parent 1: classid 1:1 htb rate 10mbit\n\
         tc class add dev e parent 1:1 classid 1:2 htb rate 6mbit\n\
         tc class add dev e parent 1:2 classid 1:21 htb rate 3mbit\n\
         tc class add dev e parent 1:2 classid 1:22 htb rate 3mbit\n\
         tc class add dev e parent 1:1 classid 1:30 htb rate 4mbit\n\
         tc filter add dev e parent 1: protocol ip prio 1 u32 match ip src 10.0.0.0/8 flowid 1:2\n\
         tc filter add dev e parent 1:2 protocol ip prio 1 u32 match ip protocol 6 0xff flowid 1:21\n\
         tc filter add dev e parent 1:2 protocol ip prio 2 u32 match ip protocol 17 0xff flowid 1:22",
    );
    let names: Vec<&str> = policy.classes.iter().map(|class| class.name.as_str()).collect();
    // What neither of them takes goes to the default, not to what comes after.
    assert_eq!(names, ["e-1:21", "e-1:22", "e-1:30"]);
    assert!(queue(&policy, "e-1:30").classes.is_empty());
}

#[test]
fn scripts_have_variables_and_commands_of_other_kinds() {
    let policy = whole(
        "#!/bin/sh\nset -e\nTC=/sbin/tc\nDEV=wan0\nUP=20\nmodprobe sch_htb\nip link set $DEV up\n\
         $TC qdisc del dev $DEV root 2>/dev/null || true\n\
         $TC qdisc add dev $DEV root handle 1: htb default 1 && \\\n $TC class add dev $DEV parent 1: classid 1:1 htb rate ${UP}mbit",
    );
    assert_eq!(queue(&policy, "wan0").rate, mbit(20));
    let import = import(&format!(
        "{TREE}for i in 1 2 3; do\ntc class add dev e parent 1:1 classid 1:4$i htb rate 1mbit\ndone\n"
    ));
    let shell: Vec<u32> = import
        .untranslated
        .iter()
        .filter(|missing| missing.why == Why::Script)
        .map(|missing| missing.origin.number())
        .collect();
    assert_eq!(shell, [5, 6]);
}

#[test]
fn commands_change_and_delete() {
    let changed = whole(
        "tc qdisc add dev e root handle 1: htb default 1\ntc class add dev e parent 1: classid 1:1 htb rate 1mbit\n\
         tc class change dev e parent 1: classid 1:1 htb rate 2mbit\n\
         tc qdisc add dev e parent 1:1 handle 2: fq_codel limit 100\ntc qdisc change dev e parent 1:1 handle 2: fq_codel target 20ms",
    );
    let root = queue(&changed, "e");
    assert_eq!((root.rate, root.limit, root.target.unwrap().0), (mbit(2), Some(100), 20_000_000));
    let replaced = whole(&format!("{TREE}tc qdisc replace dev e root handle 9: pfifo limit 7"));
    assert_eq!((replaced.queues.len(), queue(&replaced, "e").limit), (1, Some(7)));
    assert_eq!(whole(&format!("{TREE}tc qdisc del dev e root")).queues, []);
    assert_eq!(missing(&format!("{TREE}tc class add dev e parent 1:1 classid 1:10 htb rate 1mbit")).len(), 2);
}

#[test]
fn devices_of_classes() {
    let both = "qdisc htb 1: dev a root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0\n\
                qdisc htb 2: dev b root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0\n\
                class htb 2:1 root prio 0 rate 2Mbit ceil 2Mbit burst 1600b cburst 1600b\n\
                class htb 1:1 root prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b\n";
    let policy = whole(both);
    assert_eq!([queue(&policy, "a").rate, queue(&policy, "b").rate], [mbit(1), mbit(2)]);
    // Two of one handle: the line before says.
    let same = both.replace("2:", "1:");
    assert_eq!(import(&same).untranslated.iter().filter(|missing| missing.why == Why::Device).count(), 2);
    let said = same.replacen("class htb", "tc class show dev b\nclass htb", 1).replace(
        "class htb 1:1 root prio 0 rate 1",
        "$ tc class show dev a\nclass htb 1:1 root prio 0 rate 1",
    );
    let policy = whole(&said);
    assert_eq!([queue(&policy, "a").rate, queue(&policy, "b").rate], [mbit(1), mbit(2)]);
    // Without its qdisc a class is nobody's, and is said.
    let alone = missing("class htb 1:1 root prio 0 rate 2Mbit ceil 2Mbit burst 1600b cburst 1600b\n");
    assert_eq!(alone, ["`qdisc 1:` is not in the source"]);
    let orphan = missing(&format!("{TREE}tc class add dev e parent 1:99 classid 1:98 htb rate 1mbit"));
    assert!(orphan.contains(&"`1:99` is not in the source".to_owned()), "{orphan:?}");
    let lost = missing(&format!("{TREE}tc filter add dev e parent 1: protocol ip matchall flowid 1:77"));
    assert!(lost.contains(&"`1:77` is not in the source".to_owned()), "{lost:?}");
}

#[test]
fn rates_beyond_32_bits_and_beyond_all() {
    let of = |rate: &str| {
        import(&format!(
            "tc qdisc add dev e root handle 1: htb default 1\ntc class add dev e parent 1: classid 1:1 htb rate {rate}"
        ))
    };
    assert_eq!(queue(&of("400gbit").policy, "e").rate, mbit(400_000));
    for rate in ["0", "11tbit", "100tbps", "-5mbit", "5xbit", "50%"] {
        assert!(!of(rate).untranslated.is_empty(), "{rate}");
    }
    let json = r#"[{"kind":"htb","handle":"1:","dev":"e","root":true,"options":{"r2q":10,"default":"0x1"}}]
        [{"class":"htb","handle":"1:1","dev":"e","root":true,"prio":0,"rate":6250000000,"ceil":6250000000,"burst":1600,"cburst":1600}]"#;
    assert_eq!(queue(&whole(json), "e").rate, mbit(50_000));
}

#[test]
fn json_of_newer_and_older_versions() {
    // A match is a key of its own each time.
    let json = r#"[{"kind":"htb","handle":"1:","dev":"e","root":true,"offloaded":true,"options":{"r2q":10,"default":"0x20","offload":null}}]
        [{"class":"htb","handle":"1:10","dev":"e","root":true,"leaf":"0xa:","prio":1,"quantum":3000,"rate":125000,"ceil":250000,"linklayer":"ethernet","burst":1600,"burst_cell":1,"mpu_rate":0,"cburst":1600,"cburst_cell":1,"mpu_ceil":0,"level":0},
         {"class":"htb","handle":"1:20","dev":"e","root":true,"prio":0,"rate":125000,"ceil":125000,"burst":1600,"cburst":1600,"stats":{"bytes":1}}]
        [{"dev":"e","parent":"1:","protocol":"ip","pref":1,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0","flowid":"1:10",
          "match":{"value":"60000","mask":"ff0000","offmask":"","off":8},"match":{"value":"50","mask":"ffff","offmask":"","off":20}}}]"#;
    let policy = whole(json);
    assert_eq!(policy.classes[0].conditions.protocols.len(), 1);
    assert_eq!(policy.classes[0].conditions.dports.len(), 1);
    // What is no JSON is listed, and what follows is read.
    let broken = format!("[{{\"kind\":\"htb\",oops}}]\n{}", "qdisc pfifo 1: dev e root refcnt 2 limit 5p\n");
    let import = import(&broken);
    assert_eq!((import.untranslated.len(), queue(&import.policy, "e").limit), (1, Some(5)));
}

/// Wherever a listing is cut off within an array, also between two objects.
#[test]
fn json_that_is_cut_off_is_listed() {
    let before = "tc qdisc add dev e root handle 1: htb default 20\ntc class show dev e\n";
    let classes = "[{\"class\":\"htb\",\"handle\":\"1:1\",\"root\":true,\"rate\":1250000,\"ceil\":1250000},\n\
         {\"class\":\"htb\",\"handle\":\"1:20\",\"parent\":\"1:1\",\"rate\":125000,\"ceil\":1250000} ]";
    let missing = |end: usize| import(&format!("{before}{}", &classes[..end])).untranslated;
    assert_eq!(missing(classes.len()), []);
    for end in 1..classes.len() {
        assert!(!missing(end).is_empty(), "{}", &classes[..end]);
    }
}

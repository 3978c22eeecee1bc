use cases::Received;
use dataplane::describe::Description;

use super::read;

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.guest]
zone = "guest"
parent = "lan"
vlan = 20
addresses = ["192.168.20.1/24"]
"#;

fn tables() -> dataplane::Tables {
    let checked = policy::check(POLICY, "test.toml");
    dataplane::Tables::compile(&checked.policy.expect("a sound policy"), 1).expect("tables")
}

fn headline(words: &str) -> String {
    match read(words, &tables()) {
        Ok(Received { bytes, .. }) => Description::of(&bytes).headline,
        Err(error) => panic!("{error}"),
    }
}

fn complaint(words: &str) -> String {
    match read(words, &tables()) {
        Ok(_) => panic!("{words} is understood"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_said_is_what_is_built() {
    for (words, built) in [
        (
            "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn",
            "tcp 192.168.1.10:50000 > 198.51.100.7:443 syn ttl 64 length 40",
        ),
        (
            "lan tcp 192.168.1.10:1 > 198.51.100.7:2 syn,ack psh ttl 3 dscp ef df length 100",
            "tcp 192.168.1.10:1 > 198.51.100.7:2 syn,ack,psh df dscp ef ttl 3 length 100",
        ),
        (
            "lan udp [2001:db8:1::10]:5353 > [2001:db8::7]:53",
            "udp [2001:db8:1::10]:5353 > [2001:db8::7]:53 ttl 64 length 48",
        ),
        (
            "lan icmp 192.168.1.10 > 198.51.100.7 id 7 seq 9",
            "icmp 192.168.1.10 > 198.51.100.7 echo-request id 7 seq 9 ttl 64 length 28",
        ),
        (
            "lan icmpv6 2001:db8:1::10 > 2001:db8::7 packet-too-big",
            "icmpv6 2001:db8:1::10 > 2001:db8::7 packet-too-big ttl 64 length 48",
        ),
        ("guest gre 192.168.20.2 -> 198.51.100.7", "gre 192.168.20.2 > 198.51.100.7 ttl 64 length 20"),
        ("lan 253 192.168.1.2 > 198.51.100.7", "253 192.168.1.2 > 198.51.100.7 ttl 64 length 20"),
        (
            "lan udp 192.168.1.2 > 198.51.100.7 fragment 1480+ length 60",
            "udp 192.168.1.2 > 198.51.100.7 fragment 1480+ ttl 64 length 60",
        ),
        ("lan sctp 192.168.1.2:5 > 198.51.100.7:6", "sctp 192.168.1.2:5 > 198.51.100.7:6 ttl 64 length 32"),
        (
            "lan tcp 192.168.1.10:1 > 198.51.100.7:2 ack seq 7 ackno 9 window 5 mss 1400",
            "tcp 192.168.1.10:1 > 198.51.100.7:2 ack ttl 64 length 44",
        ),
        (
            "lan tcp 192.168.1.10:1 > 198.51.100.7:2 syn ack 9 fin len 5",
            "tcp 192.168.1.10:1 > 198.51.100.7:2 syn,fin ttl 64 length 45",
        ),
        (
            "lan icmp 192.168.1.10 > 198.51.100.7 destination-unreachable code 13",
            "icmp 192.168.1.10 > 198.51.100.7 admin-prohibited ttl 64 length 28",
        ),
        (
            "lan icmpv6 2001:db8:1::10 > 2001:db8::7 neighbour-solicitation ttl 255",
            "icmpv6 2001:db8:1::10 > 2001:db8::7 neighbour-solicitation ttl 255 length 48",
        ),
        (
            "lan icmp 192.168.1.10 > 198.51.100.7 3/3 quoting udp 198.51.100.7:53 > 192.168.1.10:5353",
            "icmp 192.168.1.10 > 198.51.100.7 port-unreachable ttl 64 length 56",
        ),
        (
            "lan udp 2001:db8:1::10 > 2001:db8::7 fragment 8 length 60",
            "udp 2001:db8:1::10 > 2001:db8::7 fragment 8 ttl 64 length 60",
        ),
    ] {
        assert_eq!(headline(words), built, "{words}");
    }
}

#[test]
fn a_vlan_is_tagged_and_comes_in_by_its_carrier() {
    let tables = tables();
    let worded = read("guest udp 192.168.20.2:1 > 192.168.20.1:53", &tables).expect("understood");
    assert_eq!(Some(worded.ingress), tables.interface_named("lan"));
    assert_eq!(Description::of(&worded.bytes).field("vlan"), Some("20"));
}

#[test]
fn link_layer_addresses_are_stated_or_those_of_interface_and_group() {
    for (words, ends) in [
        ("to 02:00:00:00:00:07 from 02:00:00:00:00:08", ["02:00:00:00:00:08", "02:00:00:00:00:07"]),
        ("", ["02:00:00:00:00:01", "01:00:5e:7f:01:02"]),
    ] {
        let worded = read(&format!("lan udp 192.168.1.10:1 > 239.255.1.2:2 {words}"), &tables());
        let told = Description::of(&worded.expect("understood").bytes);
        assert_eq!(
            ["link-source", "link-destination"].map(|field| told.field(field)),
            ends.map(Some),
            "{words}"
        );
    }
}

#[test]
fn errors_point_at_the_word() {
    let text = complaint("lan tcp 192.168.1.10:1 > 198.51.100.7:2 ttl 300");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "`300` is not a number from 0 to 255");
    let caret = lines[2].find('^').expect("a caret");
    assert_eq!(&lines[1][caret..caret + 3], "300");
    for (words, says) in [
        ("", "an interface is missing"),
        ("dmz tcp", "the policy has no interface `dmz`"),
        ("lan txp", "`txp` is not a protocol"),
        ("lan any", "`any` is not a protocol"),
        ("lan tcp 192.168.1.300:1 > 198.51.100.7:2", "`192.168.1.300:1` is not an IP address"),
        ("lan tcp $client:1 > 198.51.100.7:2", "`$client:1` is not an IP address"),
        ("lan tcp 192.168.1.10:1++ > 198.51.100.7:2", "`1++` is not a port from 0 to 65535"),
        ("lan tcp 192.168.1.10:1 198.51.100.7:2", "stands where `>` should"),
        ("lan tcp 192.168.1.10:1 > 198.51.100.7", "`198.51.100.7` has no port"),
        ("lan gre 192.168.1.10:1 > 198.51.100.7", "has a port"),
        ("lan udp 192.168.1.10:1 > [2001:db8::1]:2", "of different IP versions"),
        ("lan icmpv6 192.168.1.10 > 198.51.100.7", "icmpv6 is of the other IP version"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 syn", "`syn` means nothing here"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 length 20", "a packet of 20 bytes cannot be"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 vlan 5000", "`5000` is not a VLAN"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 ttl", "is missing"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 ttl 3 ttl 4", "`ttl` is said twice"),
        ("lan udp 192.168.1.10:1 > 198.51.100.7:2 => forwarded", "`=>` means nothing here"),
    ] {
        let text = complaint(words);
        assert!(text.contains(says), "{words}: {text}");
    }
}

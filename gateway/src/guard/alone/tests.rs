#![allow(clippy::unwrap_used)]

use super::*;

fn terms_of(rules: &str) -> Terms {
    let text = format!(
        "[interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\", \"2001:db8::1/64\"]\n\
         [set]\nadmins = [\"198.51.100.0/24\"]\n{rules}"
    );
    let checked = policy::check(&text, "test");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    terms(&policy, policy.interface("wan").unwrap(), &linux::State::default())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn only_rules_from_the_zone_to_self_count_in_their_order() {
    let terms = terms_of(
        "[[rule]]\nname = \"no\"\nfrom = \"wan\"\nsource = \"198.51.100.7\"\naction = \"drop\"\n\
         [[rule]]\nname = \"ssh\"\nfrom = \"wan\"\nto = \"self\"\nsource = \"@admins\"\nprotocol = \"tcp\"\ndport = 22\naction = \"accept\"\n\
         [[rule]]\nname = \"inside\"\nfrom = \"lan\"\nto = \"self\"\naction = \"accept\"\n\
         [[rule]]\nname = \"through\"\nfrom = \"wan\"\nto = \"lan\"\naction = \"accept\"\n",
    );
    assert_eq!(terms.left_out, [""; 0]);
    assert_eq!(terms.alone.own, ["192.168.1.1", "203.0.113.2", "2001:db8::1"].map(address));
    let (first, last) = (address("198.51.100.0"), address("198.51.100.255"));
    let [no, ssh] = &terms.alone.rules[..] else { panic!("{:?}", terms.alone.rules) };
    assert_eq!(
        (no.fate, &no.sources[..]),
        (Fate::Drop, &[(address("198.51.100.7"), address("198.51.100.7"))][..])
    );
    let wanted = SelfRule {
        fate: Fate::Accept,
        sources: vec![(first, last)],
        protocols: vec![6],
        dports: vec![(22, 22)],
        ..SelfRule::default()
    };
    assert_eq!(*ssh, wanted);
}

#[test]
fn what_a_guard_cannot_look_at_is_never_let_in() {
    let terms = terms_of(
        "[default]\n\"wan > self\" = \"accept\"\n\
         [[rule]]\nname = \"few\"\nfrom = \"wan\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = 22\nconnections = 3\naction = \"accept\"\n\
         [[rule]]\nname = \"marked\"\nfrom = \"wan\"\nto = \"self\"\nprotocol = \"udp\"\ndscp = \"ef\"\naction = \"drop\"\n\
         [[rule]]\nname = \"admin\"\nfrom = \"wan\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = 22\nsource-mac = \"02:00:5e:10:00:01\"\naction = \"accept\"\n\
         [[rule]]\nname = \"stranger\"\nfrom = \"wan\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = 22\nsource-mac = { except = [\"02:00:5e:10:00:01\"] }\naction = \"drop\"\n\
         [[rule]]\nname = \"xmas\"\nfrom = \"wan\"\nto = \"self\"\nprotocol = \"tcp\"\ntcp-flags = \"fin\"\naction = \"drop\"\n",
    );
    assert_eq!(terms.left_out, ["few", "admin"]);
    let [marked, stranger, rest] = &terms.alone.rules[..] else { panic!("{:?}", terms.alone.rules) };
    assert_eq!(
        (marked.fate, &marked.protocols[..]),
        (Fate::Drop, &[17][..]),
        "all of it, whatever its class"
    );
    assert_eq!((stranger.fate, &stranger.dports[..]), (Fate::Drop, &[(22, 22)][..]), "whoever sends it");
    assert_eq!(*rest, SelfRule { fate: Fate::Accept, ..SelfRule::default() });
}

#[test]
fn dynamic_sets_are_empty_to_a_guard_and_let_nobody_in() {
    let terms = terms_of(
        "[dynamic-set.some]\n\
         [[rule]]\nname = \"banned\"\nsource = \"@some\"\naction = \"drop\"\n\
         [[rule]]\nname = \"strangers\"\nto = \"self\"\nprotocol = \"udp\"\nsource = { except = [\"@some\", \"10.0.0.0/8\"] }\naction = \"drop\"\n\
         [[rule]]\nname = \"all\"\nto = \"self\"\nprotocol = \"sctp\"\nsource = { except = [\"@some\"] }\naction = \"drop\"\n\
         [[rule]]\nname = \"friends\"\nto = \"self\"\nprotocol = \"tcp\"\nsource = [\"@some\", \"10.0.0.0/8\"]\naction = \"accept\"\n\
         [[rule]]\nname = \"others\"\nto = \"self\"\nprotocol = \"tcp\"\nsource = { except = [\"@some\"] }\naction = \"accept\"\n",
    );
    assert_eq!(terms.left_out, ["friends", "others"]);
    let [strangers, all] = &terms.alone.rules[..] else { panic!("{:?}", terms.alone.rules) };
    let range = |first: &str, last: &str| (address(first), address(last));
    let wanted = [
        range("0.0.0.0", "9.255.255.255"),
        range("11.0.0.0", "255.255.255.255"),
        range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];
    assert_eq!((strangers.fate, &strangers.sources[..]), (Fate::Drop, &wanted[..]));
    assert_eq!((all.fate, &all.sources[..]), (Fate::Drop, &[][..]), "whoever sends it");
}

#[test]
fn every_address_but_some_is_what_lies_between() {
    let range = |first: &str, last: &str| AddressRange { first: address(first), last: address(last) };
    let found =
        all_but(vec![range("10.0.0.0", "10.255.255.255"), range("10.1.0.0", "11.0.0.0"), range("::", "::")]);
    let wanted = [
        range("0.0.0.0", "9.255.255.255"),
        range("11.0.0.1", "255.255.255.255"),
        range("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];
    assert_eq!(found, wanted);
    assert_eq!(all_but(vec![range("0.0.0.0", "255.255.255.255")]), []);
}

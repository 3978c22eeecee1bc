//! Text of the policy, with comments for whoever reads it first.

use std::fmt::Write;

use policy::model::LinkKind;
use policy::toml_key;

use super::answer::{Answers, SshFrom, Wishes};
use super::carry::Carried;
use super::machine::{Interface, Machine, Origin};

/// Address of the page: this machine's browsers, and those who come by SSH.
pub(crate) const PAGE: &str = "127.0.0.1:9479";

/// Writes the policy for a machine; `carried` is what nftables had.
pub(crate) fn draft(machine: &Machine, answers: &Answers, wishes: &Wishes, carried: &Carried) -> String {
    let mut text = String::from(
        "# Made by `wirerate init`, and yours to change: docs/policy.md lists every key, `wirerate check` finds mistakes.\n\
         # Addresses and routes are Linux's, whoever gives them: none need stand here. What nothing below accepts is dropped.\n\
         # `wirerate explain --live` knows them; `explain` and `replay` need `addresses` and `[[route]]` here.\n",
    );
    let outside: Vec<&str> = machine
        .interfaces
        .iter()
        .filter(|interface| interface.master.is_none())
        .map(|interface| interface.name.as_str())
        .filter(|name| !answers.wan.iter().chain(&answers.lan).any(|named| named == name))
        .collect();
    if !outside.is_empty() {
        let _ = writeln!(
            text,
            "# Not here, so they stay Linux's, and nothing is forwarded between them and the interfaces below: {}.",
            outside.join(", ")
        );
    }
    if let Some(tokens) = &wishes.page_tokens {
        let _ = write!(
            text,
            "\n# A page in the browser of this machine; from others, `ssh -L 9479:{PAGE} GATEWAY`.\n[gateway]\npage = \"{PAGE}\"\n\
             page-tokens = \"{}\"\n",
            tokens.display()
        );
    }
    for name in &answers.wan {
        interface(&mut text, machine, answers, name, Side::Wan);
    }
    for name in &answers.lan {
        interface(&mut text, machine, answers, name, Side::Lan);
    }
    if let (Some(rate), [wan]) = (&wishes.rate, answers.wan.as_slice()) {
        let _ = write!(
            text,
            "\n# Rates of download and upload, a little below what the line carries, so that packets wait here and hosts share evenly.\n\
             [shape.{}]\nrate = \"{rate}\"\n",
            toml_key(wan)
        );
    }
    let forwards = !answers.lan.is_empty();
    if forwards && !carried.filters_forwarding {
        text.push_str(
            "\n# Connections that no rule decides. All other pairs of zones: drop.\n[default]\n\"lan > wan\" = \"accept\"\n",
        );
    }
    if forwards && !carried.translates_sources {
        let name = carried.unused_nat("masquerade");
        let _ = write!(
            text,
            "\n# IPv4 from the inside leaves under the gateway's own address. IPv6 leaves as it is.\n[[nat]]\nname = \"{name}\"\n\
             kind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n"
        );
    }
    ssh(&mut text, answers, carried);
    if !carried.text.is_empty() {
        text.push_str("\n# Carried over from nftables.\n");
        for missing in &carried.left_out {
            let _ = writeln!(text, "# Left out: {}", missing.replace('\n', " "));
        }
        text.push('\n');
        text.push_str(&carried.text);
    }
    if !carried.filters_input {
        services(&mut text, answers, carried);
    }
    text
}

/// Side of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Wan,
    Lan,
}

fn interface(text: &mut String, machine: &Machine, answers: &Answers, name: &str, side: Side) {
    let Some(interface) = machine.interface(name) else { return };
    let what = if side == Side::Wan { "The internet" } else { "The inside" };
    let _ = write!(
        text,
        "\n# {what}. Linux has {}{}.\n[interface.{}]\n",
        interface.addressing(),
        if is_learnt(interface) { " (learnt, and followed when they change)" } else { "" },
        toml_key(name)
    );
    let zone = if side == Side::Wan { "wan" } else { "lan" };
    let _ = writeln!(text, "zone = \"{zone}\"");
    if interface.link == LinkKind::Ip {
        text.push_str("link = \"ip\"\n");
    }
    // Frames of a VLAN come by its parent: where both are here, the policy must say so.
    if let Some(vlan) = &interface.vlan {
        if answers.wan.iter().chain(&answers.lan).any(|named| *named == vlan.parent) {
            let _ = write!(text, "parent = \"{}\"\nvlan = {}\n", vlan.parent, vlan.id);
        }
    }
    if side == Side::Wan && !answers.lan.is_empty() {
        text.push_str("mss = \"mtu\"\n");
    }
    // Answers to what came by the second one may have to leave by the first.
    if side == Side::Wan && answers.wan.len() > 1 {
        text.push_str("source-check = \"loose\"\n");
    }
}

fn is_learnt(interface: &Interface) -> bool {
    interface.addresses.iter().any(|address| address.origin == Origin::Learnt)
}

fn ssh(text: &mut String, answers: &Answers, carried: &Carried) {
    let port = answers.ssh_port;
    let mut rule = |name: &str, which: &str| {
        let name = carried.unused_rule(name);
        let _ = write!(
            text,
            "\n[[rule]]\nname = \"{name}\"\n{which}to = \"self\"\nprotocol = \"tcp\"\ndport = {port}\naction = \"accept\"\n"
        );
    };
    let nets: Vec<String> = answers
        .ssh_from
        .iter()
        .filter(|from| matches!(from, SshFrom::Net(_)))
        .map(|from| format!("\"{from}\""))
        .collect();
    if answers.ssh_from.contains(&SshFrom::Anywhere) {
        // A pace that nobody at a keyboard notices.
        rule("ssh", "rate = \"20/minute burst 20 per source\"\n");
    } else {
        if answers.ssh_from.contains(&SshFrom::Lan) {
            rule("ssh-lan", "from = \"lan\"\n");
        }
        if !nets.is_empty() {
            rule("ssh", &format!("source = [{}]\n", nets.join(", ")));
        }
    }
    // Rules that were there before may have it open.
    if !carried.text.is_empty() {
        let name = carried.unused_rule("ssh-from-nowhere-else");
        let _ = write!(
            text,
            "\n[[rule]]\nname = \"{name}\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = {port}\naction = \"drop\"\n"
        );
    }
}

fn services(text: &mut String, answers: &Answers, carried: &Carried) {
    for (name, protocol) in [("ping", "icmp"), ("ping6", "icmpv6")] {
        let name = carried.unused_rule(name);
        let _ = write!(
            text,
            "\n[[rule]]\nname = \"{name}\"\nto = \"self\"\nprotocol = \"{protocol}\"\nicmp = \"echo-request\"\n\
             rate = \"10/second burst 20\"\naction = \"accept\"\n"
        );
    }
    if answers.lan.is_empty() {
        return;
    }
    text.push_str(
        "\n# Names, addresses and the time of day for the inside, as far as this machine serves them.\n",
    );
    let name = carried.unused_rule("lan-services");
    let dns = carried.unused_rule("lan-dns-tcp");
    let _ = write!(
        text,
        "[[rule]]\nname = \"{name}\"\nfrom = \"lan\"\nto = \"self\"\nprotocol = \"udp\"\ndport = [53, 67, 123, 547]\n\
         action = \"accept\"\n\n[[rule]]\nname = \"{dns}\"\nfrom = \"lan\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = 53\n\
         action = \"accept\"\n"
    );
}

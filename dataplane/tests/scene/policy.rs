//! Policies made of bytes.

use std::fmt::Write;

use wire::esp::{Esn, SUITES, Suite};

/// Ports of every scene, in the order of the interfaces: the VLAN of the guests has none of its own.
pub const LAN: u16 = 0;
pub const WAN: u16 = 2;
pub const WAN2: u16 = 3;

/// Source translation on the outer interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    None,
    Masquerade,
    Pool,
    OneToOne,
}

/// A policy, and its expected properties.
#[derive(Clone, Debug)]
pub struct Scene {
    pub text: String,
    pub translation: Translation,
    pub is_stateful: bool,
    /// True if there is a tunnel.
    pub has_tunnel: bool,
    /// Local end and peer of a tunnel in transport mode.
    pub transport: Option<[&'static str; 2]>,
    /// Security association by which the tunnel's peer sends.
    pub inward: Association,
    /// True if there are multicast routes.
    pub has_groups: bool,
    /// True if queues never fill, so that it does not matter how frames are put into batches.
    pub has_room: bool,
}

/// Bytes that a policy is made of.
pub const BYTES: usize = 14;

/// The policy that these bytes stand for.
pub fn of(bytes: &[u8; BYTES]) -> Scene {
    let [mode, nat, flows, sizes, mtu, strict, rules, limits, ecmp, fragments, times, queue, suite, life] =
        *bytes;
    let inward = Association {
        suite: &SUITES[usize::from(suite) % SUITES.len()],
        esn: [Esn::Off, Esn::On][usize::from(life & 1)],
    };
    let is_stateful = mode % 8 != 0;
    let has_tunnel = mode >> 3 & 3 == 3;
    let translation = match nat % 4 {
        _ if !is_stateful => Translation::None,
        0 => Translation::None,
        1 => Translation::Masquerade,
        2 => Translation::Pool,
        _ => Translation::OneToOne,
    };
    let mut text = String::new();
    if !is_stateful {
        text.push_str("mode = \"stateless\"\n");
    }
    let check = ["strict", "loose", "off"][usize::from(strict % 3)];
    let mac = if strict & 8 == 0 { "" } else { "mac = \"02:00:00:00:00:0a\"\n" };
    let priorities = if strict & 16 == 0 { "pcp = \"dscp\"\ndei = true\n" } else { "" };
    let mtu = [1500, 1280, 1300, 4000][usize::from(mtu % 4)];
    let is_transport = has_tunnel && usize::from(suite) / SUITES.len() % 3 == 2;
    // What is left of a smaller link carries no IPv6.
    let transport =
        Some(ends(mode >> 5)).filter(|[local, _]| is_transport && (mtu >= 1_500 || !local.contains(':')));
    let rate =
        ["", "rate = \"1 Mbit/s\"\n", "rate = \"10 Gbit/s\"\n", "rate = \"64 kbit/s\"\noverhead = 0\n"]
            [usize::from(queue / 5 % 4)];
    let mss = if sizes & 16 == 0 { "" } else { "mss = \"mtu\"\n" };
    let _ = write!(
        text,
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\", \"2001:db8:1::1/64\"]\n{mac}\
         [interface.guest]\nzone = \"guest\"\nparent = \"lan\"\nvlan = 20\naddresses = [\"192.168.20.1/24\"]\n\
         {priorities}\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\", \"2001:db8:ffff::2/64\"]\n\
         mtu = {mtu}\nsource-check = \"{check}\"\n{mss}{rate}\
         [interface.wan2]\nzone = \"wan\"\naddresses = [\"198.51.100.2/24\"]\nsource-check = \"off\"\n\
         [default]\n\"lan > wan\" = \"accept\"\n\"lan > self\" = \"accept\"\n\"guest > wan\" = \"{}\"\n\
         \"wan > lan\" = \"{}\"\n\"wan > self\" = \"reject\"\n{}",
        ["accept", "reject"][usize::from(rules & 1)],
        ["drop", "accept", "reject tcp-reset", "reject host-unreachable"][usize::from(rules >> 1 & 3)],
        ["", "\"other > wan\" = \"accept\"\n", "\"other > any\" = \"reject\"\n", ""]
            [usize::from(limits >> 6)],
    );
    if has_tunnel {
        tunnel(&mut text, [mode >> 5, rules, life, ecmp >> 3], mtu, inward, transport.is_some());
    }
    let via = if ecmp & 1 == 0 {
        "\"203.0.113.1\"".to_owned()
    } else {
        "[\"203.0.113.1\", { via = \"198.51.100.1\", weight = 2 }]".to_owned()
    };
    let _ = write!(
        text,
        "[[route]]\nto = \"{}\"\nvia = {via}\n{}\
         [[route]]\nto = \"10.9.0.0/16\"\nkind = \"blackhole\"\n[[route]]\nto = \"10.8.0.0/16\"\nkind = \"unreachable\"\n",
        // The rest of IPv4 goes by a CLAT.
        if has_clat(translation, nat) { "128.0.0.0/1" } else { "0.0.0.0/0" },
        if ecmp & 6 == 6 { "" } else { "[[route]]\nto = \"::/0\"\nvia = \"2001:db8:ffff::1\"\n" },
    );
    let has_groups = sizes & 32 != 0;
    if has_groups {
        text.push_str(GROUPS);
    }
    nats(&mut text, translation, nat);
    rule_list(&mut text, rules, is_stateful, times & 6 == 6);
    if limits >> 6 > 1 {
        text.push_str("[[rule]]\nname = \"containers\"\nfrom = \"other\"\nprotocol = [\"tcp\", \"icmp\"]\naction = \"accept\"\n");
    }
    classes(&mut text, fragments >> 5, is_stateful, rules);
    let full = ["refuse", "evict-idle"][usize::from(flows & 1)];
    let count = [2, 3, 4, 8, 16, 64, 1024, 5][usize::from(flows >> 1 & 7)];
    let queue_len = [1024, 1, 2, 5, 20][usize::from(queue % 5)];
    let _ = write!(
        text,
        "[limit]\nflows = {count}\nwhen-full = \"{full}\"\nqueue = {queue_len}\nerrors-per-second = {}\n\
         tcp-window = \"{}\"\npickup = \"{}\"\nchecksum = \"{}\"\n{}",
        [1000, 0, 1, 3][usize::from(limits & 3)],
        ["strict", "off"][usize::from(limits >> 2 & 1)],
        ["refuse", "accept"][usize::from(limits >> 3 & 1)],
        ["verify", "ignore"][usize::from(limits >> 4 & 1)],
        if limits & 32 == 0 { "" } else { "flows-per-source = 2\n" },
    );
    let _ = write!(
        text,
        "[limit.fragments]\ndatagrams = {}\nheld = {}\ndatagram = {}\n",
        [1, 2, 4, 64][usize::from(fragments & 3)],
        [1, 2, 3, 80][usize::from(fragments >> 2 & 3)],
        if fragments & 16 == 0 { 65535 } else { 4000 },
    );
    if times & 1 != 0 {
        text.push_str("[timeout]\ntcp-half-open = \"1s\"\ntcp-established = \"3s\"\ntcp-closing = \"1s\"\n");
        text.push_str("tcp-reset = \"1s\"\nudp = \"2s\"\nicmp = \"1s\"\nother = \"2s\"\nfragment = \"1s\"\n");
    }
    Scene {
        text,
        translation,
        is_stateful,
        has_tunnel,
        transport,
        inward,
        has_groups,
        has_room: queue_len == 1024,
    }
}

/// Multicast routes from outside to both networks inside, and from one of these to the other: none shows an inside address outside.
const GROUPS: &str = r#"
[[multicast-route]]
group = "239.1.0.0/16"
from = "wan"
to = ["guest threshold 3", "lan"]
[[multicast-route]]
group = "239.1.2.0/24"
from = "lan"
to = ["guest threshold 1", "wan threshold 255"]
[[multicast-route]]
group = "ff3e::/16"
from = "wan"
to = ["guest threshold 1", "lan"]
[[rule]]
name = "channels"
from = "wan"
to = ["lan", "guest"]
destination = ["239.1.1.0/24", "ff3e::/16"]
action = "accept"
"#;

/// Outer address of the tunnel's peer, which the second byte of a packet chooses among, too.
pub const PEERS: [&str; 4] = ["203.0.113.9", "8.8.4.4", "2001:db8:ffff::1", "2001:db8:beef::2"];

/// SPIs of the tunnel: out, and in.
pub const SPIS: [u32; 2] = [0x1000, 0x2000];

/// Algorithms of a security association.
#[derive(Clone, Copy, Debug)]
pub struct Association {
    pub suite: &'static Suite,
    pub esn: Esn,
}

impl Default for Association {
    fn default() -> Association {
        Association { suite: &SUITES[0], esn: Esn::Off }
    }
}

impl Association {
    /// Keys of cipher and integrity algorithm, under that SPI.
    pub fn keys(&self, spi: u32) -> [Vec<u8>; 2] {
        let Suite { key, salt, auth_key, .. } = *self.suite;
        let bytes =
            |len: u8, step: u32| (0..u32::from(len)).map(|at| (at * step + (spi >> 8)) as u8).collect();
        [bytes(key + salt, 37), bytes(auth_key, 59)]
    }

    fn text(&self, spi: u32, direction: &str, lifetimes: &str) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let name = self.suite.name();
        let [key, auth_key] = self.keys(spi).map(|key| hex(&key));
        let mut text = format!(
            "[[interface.tun.esp.sa]]\ndirection = \"{direction}\"\nspi = {spi}\nalgorithm = \"{}\"\nesn = {}\n{lifetimes}",
            name.algorithm(),
            self.esn == Esn::On
        );
        for (word, value) in
            [("auth", name.auth().unwrap_or_default()), ("key", &key), ("auth-key", &auth_key)]
        {
            if !value.is_empty() {
                let _ = writeln!(text, "{word} = \"{value}\"");
            }
        }
        text
    }
}

/// Local end of a tunnel, and its peer.
fn ends(which: u8) -> [&'static str; 2] {
    let local = if which & 2 == 0 { "203.0.113.2" } else { "2001:db8:ffff::2" };
    [local, PEERS[usize::from(which % 4)]]
}

/// A tunnel to one of the peers, on the link or behind the router, for some of the hosts outside. The text is in the midst of
/// `[default]`.
fn tunnel(
    text: &mut String,
    [which, rules, life, how]: [u8; 4],
    mtu: u16,
    sa: Association,
    is_transport: bool,
) {
    let [local, peer] = ends(which);
    let mss = if which & 4 == 0 { "" } else { "mss = \"mtu\"\nmtu = 1300\n" };
    // What is left of a smaller link carries no IPv6.
    let six = match mtu {
        1_500.. => "[[route]]\nto = \"2001:db8:beef::1\"\ninterface = \"tun\"\n",
        _ => "",
    };
    let lifetimes = [
        "",
        "",
        "soft = { packets = 2 }\nhard = { packets = 5 }\n",
        "soft = { bytes = 100, time = \"1s\" }\nhard = { bytes = 1000, time = \"20s\" }\n",
    ][usize::from(life >> 1 & 3)];
    let window = match life >> 3 & 3 {
        0 => "",
        1 => "window = 32\n",
        2 if sa.esn == Esn::Off => "window = \"off\"\n",
        _ => "window = 100\n",
    };
    let header = ["", "df = \"set\"\ndscp = \"af41\"\n", "df = \"clear\"\necn = \"off\"\n", "dscp = 0\n"]
        [usize::from(life >> 5 & 3)];
    let tfc = match (life >> 7, which & 4) {
        (0, _) => "",
        (_, 0) => "tfc = 64\n",
        _ => "tfc = \"mtu\"\n",
    };
    let udp = ["no", "yes"][usize::from(how & 1)];
    let fragment = if how & 2 != 0 && which & 2 == 0 { "fragment = \"after\"\n" } else { "" };
    // By routes, or by selectors: of everything, of some ports, or without a destination that goes around.
    let remote = [
        "\"8.8.8.8\"",
        "{ net = \"8.8.8.8\", protocol = \"udp\", port = \"0-1023\" }",
        "{ net = \"8.8.8.8\", protocol = \"tcp\" }",
        "\"8.8.8.0/24\"",
    ][usize::from(how >> 3 & 3)];
    let (routes, selectors) = if how & 4 == 0 {
        (format!("[[route]]\nto = \"8.8.8.8\"\ninterface = \"tun\"\n{six}"), String::new())
    } else {
        let [local6, remote6] =
            if six.is_empty() { [""; 2] } else { [", \"2001:db8:1::/64\"", ", \"2001:db8:beef::1\""] };
        let selectors = format!(
            "local-net = [\"192.168.0.0/16\"{local6}]\nremote-net = [{remote}{remote6}]\ndirect = \"8.8.8.4/30\"\n"
        );
        (String::new(), selectors)
    };
    let keepalive = match (how & 1, life >> 5 & 3) {
        (1, 1) => "keepalive = \"1s\"\n",
        (1, 2) => "keepalive = \"20s\"\n",
        _ => "",
    };
    let (routes, selectors) = match is_transport {
        false => (routes, format!("{fragment}{selectors}{header}{tfc}")),
        // All between both ends, or one protocol.
        true if how & 12 == 12 => {
            let selectors = format!(
                "mode = \"transport\"\nlocal-net = \"{local}\"\nremote-net = {{ net = \"{peer}\", protocol = \"udp\", port = \"0-1023\" }}\n"
            );
            (String::new(), selectors)
        }
        true => (String::new(), "mode = \"transport\"\n".to_owned()),
    };
    // Nobody knows before where it is.
    let remote = if !is_transport && rules & 0x90 == 0x90 { "any" } else { peer };
    let [out, inward] = SPIS;
    let _ = write!(
        text,
        "\"vpn > self\" = \"accept\"\n\"lan > vpn\" = \"{}\"\n\"vpn > lan\" = \"{}\"\n\"vpn > wan\" = \"accept\"\n\"vpn > vpn\" = \"accept\"\n\
         [interface.tun]\nzone = \"vpn\"\n{mss}[interface.tun.esp]\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
         udp = \"{udp}\"\n{keepalive}{selectors}legacy = true\n{window}{}{}\
         {routes}",
        ["accept", "accept", "accept", "reject"][usize::from(rules >> 5 & 3)],
        ["accept", "reject"][usize::from(rules >> 1 & 1)],
        sa.text(out, "out", lifetimes),
        sa.text(inward, "in", lifetimes),
    );
}

/// True if there is a CLAT.
fn has_clat(translation: Translation, nat: u8) -> bool {
    nat & 64 != 0 && matches!(translation, Translation::Masquerade | Translation::Pool)
}

fn nats(text: &mut String, translation: Translation, nat: u8) {
    let ports = ["", "ports = \"4000-4001\"\n", "ports = \"4000-4007\"\nquota = 2\n", "quota = 3\n"]
        [usize::from(nat >> 2 & 3)];
    let hairpin = if nat & 16 == 0 { "" } else { "hairpin = false\n" };
    if nat & 32 != 0 && matches!(translation, Translation::Masquerade | Translation::Pool) {
        // Hosts of 2001:db8:beef::/48 stand for 190.239.0.0, the others for no address that may be reached.
        let _ = write!(
            text,
            "[[nat]]\nname = \"six-to-four\"\nkind = \"nat64\"\nfrom = \"lan\"\nprefix = \"2001:db8::/32\"\n{ports}"
        );
    }
    if has_clat(translation, nat) {
        let _ = write!(
            text,
            "[[nat]]\nname = \"four-to-six\"\nkind = \"clat\"\nfrom = [\"lan\", \"guest\"]\n{ports}"
        );
    }
    match translation {
        Translation::None => return,
        Translation::Masquerade => {
            let _ = write!(
                text,
                "[[nat]]\nname = \"out\"\nkind = \"masquerade\"\nfrom = [\"lan\", \"guest\"]\nto = \"wan\"\n\
                 source = \"192.168.0.0/16\"\n{ports}"
            );
        }
        Translation::Pool => {
            let _ = write!(
                text,
                "[[nat]]\nname = \"out\"\nkind = \"source\"\nto = \"wan\"\nsource = \"192.168.0.0/16\"\n\
                 pool = [\"203.0.113.10-203.0.113.11\"]\n{ports}"
            );
        }
        Translation::OneToOne => {
            let _ = write!(
                text,
                "[[nat]]\nname = \"one\"\nkind = \"one-to-one\"\noutside = \"203.0.113.64/28\"\n\
                 inside = \"192.168.1.0/28\"\n{hairpin}\
                 [[nat]]\nname = \"six\"\nkind = \"one-to-one\"\noutside = \"2001:db8:ffff::40/124\"\n\
                 inside = \"2001:db8:1::/124\"\n{hairpin}"
            );
        }
    }
    let _ = write!(
        text,
        "[[nat]]\nname = \"web\"\nkind = \"forward\"\noutside = \"203.0.113.2\"\nprotocol = [\"tcp\", \"udp\"]\n\
         port = 80\ntarget = \"192.168.1.5:8080\"\n{hairpin}"
    );
}

/// Traffic classes: none, marks, or meters of several kinds.
fn classes(text: &mut String, which: u8, is_stateful: bool, rules: u8) {
    if which == 0 {
        return;
    }
    let per = match which & 3 {
        0 if is_stateful => "flow",
        1 => "all",
        2 => "destination",
        _ => "source/31",
    };
    let mac = if rules & 0x80 == 0 { "" } else { "source-mac = { except = [\"02:00:00:00:00:78\"] }\n" };
    let meter = if which & 4 == 0 { "" } else { "meter = \"slow\"\n" };
    let _ = write!(
        text,
        "[[class]]\nname = \"web\"\nprotocol = [\"tcp\", \"udp\"]\ndport = [80, 443, 8080]\ndscp = [\"cs0\", 1, 2, 3, 4, 5]\n\
         mark = \"af11\"\n{meter}\
         [[class]]\nname = \"prior\"\npcp = [1, 5, 7]\nmark = \"af23\"\nmark-pcp = 6\n{meter}\
         [[class]]\nname = \"guests\"\nfrom = \"guest\"\nmark = \"le\"\n\
         [[class]]\nname = \"out\"\nto = \"wan\"\n{mac}{meter}\
         [[class]]\nname = \"rest\"\nsource = {{ except = [\"203.0.113.9\"] }}\nmark = \"cs1\"\n"
    );
    if which & 4 != 0 {
        // Few packets, or packets of many segments, too.
        let (burst, peak) = if rules & 4 == 0 { (2, 4) } else { (100, 200) };
        let _ = write!(
            text,
            "[[meter]]\nname = \"slow\"\nkind = \"trtcm\"\nrate = \"3 packets/s\"\nburst = {burst}\npeak-rate = \"5 packets/s\"\n\
             peak-burst = {peak}\ncolours = \"aware\"\nyellow = \"af13\"\nred = \"ecn-or-drop\"\nper = \"{per}\"\ninstances = 2\n"
        );
    }
}

fn rule_list(text: &mut String, rules: u8, is_stateful: bool, is_proxied: bool) {
    let syn = if is_stateful && is_proxied { "syn = \"proxy\"\n" } else { "" };
    let limit = match rules >> 5 & 3 {
        _ if !is_stateful => "",
        1 => "connections = \"2 per source\"\n",
        2 => "connections = 3\n",
        _ => "",
    };
    let rate = if rules & 8 == 0 { "" } else { "rate = \"2/second burst 3 per source\"\n" };
    if rules & 0x80 != 0 {
        text.push_str(
            "[[rule]]\nname = \"staff\"\nfrom = [\"lan\", \"guest\"]\nsource-mac = \"02:00:00:00:00:78\"\ndport = [53, 443]\n\
             protocol = \"udp\"\naction = \"accept\"\n\
             [[rule]]\nname = \"strangers\"\nfrom = \"lan\"\nsource-mac = { except = [\"02:00:00:00:00:78\"] }\nprotocol = \"icmp\"\n\
             action = \"drop\"\n",
        );
    }
    let _ = write!(
        text,
        "[[rule]]\nname = \"web-in\"\nfrom = [\"wan\", \"lan\"]\nto = \"lan\"\nprotocol = [\"tcp\", \"udp\"]\n\
         dport = [8080, 443]\n{limit}{rate}{syn}action = \"accept\"\n\
         [[rule]]\nname = \"guest-udp\"\nfrom = \"guest\"\nprotocol = \"udp\"\ndport = \"1-999\"\n{rate}\
         action = \"accept\"\n\
         [[rule]]\nname = \"web-out\"\nfrom = [\"lan\", \"guest\"]\nto = \"wan\"\nprotocol = [\"tcp\", \"udp\"]\n\
         dport = [80, 443]\n{limit}{rate}{syn}action = \"accept\"\n\
         [[rule]]\nname = \"no-gre\"\nprotocol = 47\ndscp = 0\naction = \"drop\"\n\
         [[rule]]\nname = \"no-mail\"\nfrom = \"lan\"\nprotocol = \"tcp\"\ndport = 25\naction = \"reject\"\n"
    );
    if rules & 16 != 0 {
        text.push_str("[[rule]]\nname = \"ping-in\"\nfrom = \"wan\"\nprotocol = [\"icmp\", \"icmpv6\"]\naction = \"accept\"\n");
    }
}

/// A policy that lets TCP in from outside by one rule, with this line in it.
pub fn web(line: &str) -> String {
    format!(
        r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[rule]]
name = "web"
from = "wan"
to = "lan"
protocol = "tcp"
{line}
action = "accept"
"#
    )
}

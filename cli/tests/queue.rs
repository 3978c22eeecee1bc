//! Queues and classes, as people see them: `wirerate check --draw`, and what `wirerate replay` measures and plots.
#![allow(clippy::unwrap_used)]

mod run;

use std::collections::BTreeSet;

use run::{Room, root, wirerate};
use serde_json::Value;
use wire::capture::{PcapngWriter, Record};
use wire::ethernet::Mac;
use wire::{Dscp, Nanos, build};

const INTERFACES: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[default]
"lan > wan" = "accept"
"#;

/// Rectangle of a card in a drawing, with its title and its lines of text.
#[derive(Debug)]
struct Card {
    title: String,
    rows: Vec<String>,
    /// Left, top, right, bottom.
    edges: [f64; 4],
}

fn attribute(element: &str, name: &str) -> f64 {
    let start = element.find(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} of {element}"));
    let rest = &element[start + name.len() + 3..];
    rest[..rest.find('"').unwrap()].parse().unwrap()
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The cards of a drawing. Each fits its text: checked here, by the width that a monospaced font has.
fn cards(svg: &str) -> Vec<Card> {
    let mut cards = Vec::new();
    for group in svg.split("<g>").skip(1) {
        let group = &group[..group.find("</g>").unwrap()];
        let mut edges = [f64::MAX, f64::MAX, 0.0_f64, 0.0_f64];
        let mut front = [0.0; 4];
        for rect in group.split("<rect").skip(1) {
            let (x, y) = (attribute(rect, "x"), attribute(rect, "y"));
            let (right, bottom) = (x + attribute(rect, "width"), y + attribute(rect, "height"));
            edges = [edges[0].min(x), edges[1].min(y), edges[2].max(right), edges[3].max(bottom)];
            front = [x, y, right, bottom];
        }
        let mut rows = Vec::new();
        let mut last = front[1];
        for text in group.split("<text").skip(1) {
            let (x, y) = (attribute(text, "x"), attribute(text, "y"));
            let row = plain(&text[text.find('>').unwrap() + 1..text.find("</text>").unwrap()]);
            let letter = if text.contains("class=\"title\"") { 7.25 } else { 6.65 };
            let end = x + letter * row.chars().count() as f64;
            assert!(x > front[0] && end < front[2], "{row} is wider than its card");
            assert!(y - last >= 9.0 && y < front[3], "{row} is not in its card");
            last = y;
            rows.push(row);
        }
        let title = plain(&group[group.find("<title>").unwrap() + 7..group.find("</title>").unwrap()]);
        let title = title.lines().next().unwrap().to_owned();
        cards.push(Card { title, rows, edges });
    }
    for (place, one) in cards.iter().enumerate() {
        for other in &cards[place + 1..] {
            let [left, top, right, bottom] = one.edges;
            let is_apart = right <= other.edges[0]
                || other.edges[2] <= left
                || bottom <= other.edges[1]
                || other.edges[3] <= top;
            assert!(is_apart, "{one:?} lies on {other:?}");
        }
    }
    let (width, height) = (attribute(svg, "width"), attribute(svg, "height"));
    assert!(cards.iter().all(|card| card.edges[2] <= width && card.edges[3] <= height));
    cards
}

/// The drawing of a policy.
fn drawn(room: &Room, policy: &str) -> String {
    let (policy, svg) = (room.write("policy.toml", policy), room.path("queues.svg"));
    let run = wirerate(&["check", &policy, "--draw", &svg]).exits(0);
    assert!(run.out.contains("Drawn to"), "{}", run.out);
    std::fs::read_to_string(svg).unwrap()
}

fn titled<'a>(cards: &'a [Card], title: &str) -> &'a Card {
    let mut found = cards.iter().filter(|card| card.title == title);
    let card = found.next().unwrap_or_else(|| panic!("no card {title}"));
    assert!(found.next().is_none(), "two cards {title}");
    card
}

fn says(card: &Card, text: &str) -> bool {
    card.rows.join(" ").contains(text)
}

#[test]
fn a_drawing_has_classes_meters_and_queues_with_what_they_do() {
    let room = Room::new("drawn");
    let text = std::fs::read_to_string(root().join("policies/diffserv-edge.toml")).unwrap();
    let cards = cards(&drawn(&room, &text));
    for name in ["core-ef", "core-af1", "core-af2", "core-af3", "core-af4", "core-control", "core-be"] {
        titled(&cards, name);
    }
    let gold: Vec<&Card> = cards.iter().filter(|card| card.title == "gold").collect();
    let [class, meter] = gold[..] else { panic!("{gold:?}") };
    assert!(says(class, "source @gold") && says(meter, "green af11, yellow af12, red drop"), "{gold:?}");
    let leaf = titled(&cards, "core-af1");
    assert!(says(leaf, "drop red, 100-200 5%, 60-100 10%, 30-60 20%, marks ECN"), "{leaf:?}");
    assert!(says(leaf, "priority 1, weight 16") && says(leaf, "limit 256 packets"), "{leaf:?}");
    // The class has no queue of its own: its meter's code points lead to the leaf beside it.
    let height = |card: &Card| (card.edges[1] + card.edges[3]) / 2.0;
    assert!((height(meter) - height(leaf)).abs() < 60.0 && meter.edges[2] < leaf.edges[0]);
    let ef = titled(&cards, "core-ef");
    assert!(says(ef, "ceiling 20 Mbit/s") && says(ef, "drop tail") && says(ef, "phb ef"), "{ef:?}");
    assert!(says(titled(&cards, "core-control"), "guarantee 1 Mbit/s"));
    assert!(says(titled(&cards, "core-be"), "all other packets"));
    assert!(says(titled(&cards, "by code point"), "packets of no class"));
}

#[test]
fn shapes_and_templates_are_drawn_as_what_they_stand_for() {
    let room = Room::new("drawn-short");
    let shape = format!("{INTERFACES}[shape.wan]\nrate = \"95 Mbit/s / 19 Mbit/s\"\n");
    let svg = drawn(&room, &shape);
    let all = cards(&svg);
    for side in ["up", "down"] {
        for class in ["voice", "best-effort", "bulk"] {
            assert!(says(titled(&all, &format!("wan-{side}-{class}")), "drop codel"));
        }
    }
    assert!(svg.contains(">on wan<") && svg.contains(">from wan<"));
    assert!(says(titled(&all, "wan-up"), "ceiling 19 Mbit/s"));
    assert!(
        says(titled(&all, "wan-down-best-effort"), "isolate destination")
            || says(titled(&all, "wan-down-best-effort"), "by destination")
    );
    let template = "[[queue]]\nname = \"out\"\non = [\"lan\", \"wan\"]\ntemplate = \"diffserv\"\n";
    let all = cards(&drawn(&room, &format!("{INTERFACES}{template}")));
    for name in ["out", "out-ef", "out-af1", "out-af2", "out-af3", "out-af4", "out-be"] {
        titled(&all, name);
    }
    assert!(says(titled(&all, "lan, wan"), "each a tree of its own"));
    let none = drawn(&room, INTERFACES);
    assert!(cards(&none).is_empty() && none.contains("one queue, first in, first out, of 1024 packets"));
}

/// Leaves with classes of their own, `alike` or not, with the longest names that there are.
fn many(leaves: usize, is_alike: bool) -> String {
    let mut text = format!("{INTERFACES}[[queue]]\nname = \"root\"\non = \"wan\"\n");
    for leaf in 0..leaves {
        let name = format!("{leaf:05}{}", "x".repeat(59));
        let weight = if is_alike { 1 } else { leaf % 60_000 + 1 };
        text += &format!(
            "[[class]]\nname = \"c{name:.60}\"\nsource = \"10.{}.{}.{}\"\n",
            leaf >> 16,
            leaf >> 8 & 255,
            leaf & 255
        );
        text += &format!(
            "[[queue]]\nname = \"{name}\"\nin = \"root\"\nclass = \"c{name:.60}\"\nlimit = 1\nweight = {weight}\n"
        );
    }
    text + "[[queue]]\nname = \"rest\"\nin = \"root\"\n"
}

#[test]
fn long_names_and_a_hundred_leaves_do_not_lie_on_one_another() {
    let room = Room::new("drawn-many");
    let all = cards(&drawn(&room, &many(130, false)));
    let leaves = all.iter().filter(|card| card.title.ends_with("xx") && !card.title.starts_with('c'));
    assert_eq!(leaves.count(), 130);
    let alike = cards(&drawn(&room, &many(130, true)));
    assert!(alike.len() < 8, "{alike:?}");
    assert!(alike.iter().any(|card| says(card, "and 129 alike")), "{alike:?}");
    assert!(alike.iter().any(|card| card.title == "130 classes"), "{alike:?}");
}

#[test]
fn a_drawing_of_tens_of_thousands_of_queues_is_bounded_and_says_so() {
    let room = Room::new("drawn-huge");
    let svg = drawn(&room, &many(30_000, false));
    let all = cards(&svg);
    let leaves = all.iter().filter(|card| card.title.ends_with("xx") && !card.title.starts_with('c')).count();
    assert!((100..=300).contains(&leaves), "{leaves}");
    let more = format!("… {} more queues", {
        let left = 30_001 - leaves;
        format!("{},{:03}", left / 1_000, left % 1_000)
    });
    titled(&all, &more);
    // Viewers draw up to 32,767 pixels.
    assert!(attribute(&svg, "height") < 32_000.0 && svg.len() < 1 << 20);
}

#[test]
fn a_drawing_does_not_replace_the_policy_nor_show_a_wrong_one() {
    let room = Room::new("drawn-wrong");
    let policy = room.write("policy.toml", INTERFACES);
    let run = wirerate(&["check", &policy, "--draw", &policy]).exits(2);
    assert!(run.err.contains("would be written over"), "{}", run.err);
    assert_eq!(std::fs::read_to_string(&policy).unwrap(), INTERFACES);
    let wrong = room.write("wrong.toml", "[[queue]]\nname = \"a\"\n");
    let svg = room.path("wrong.svg");
    wirerate(&["check", &wrong, "--draw", &svg]).exits(1);
    assert!(!std::path::Path::new(&svg).exists());
}

/// Packet of UDP of so many bytes of IP, from one host of the inside.
fn packet(host: u8, length: usize, dscp: u8, ecn: u8) -> Vec<u8> {
    let (from, to) = (format!("192.168.1.{host}"), "203.0.113.9".to_owned());
    let frame = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]));
    let payload = vec![0; length - 28];
    let field = Dscp::new(dscp).unwrap().value() << 2 | ecn;
    frame
        .ipv4(from.parse().unwrap(), to.parse().unwrap())
        .ds_field(field)
        .udp(4_000, 5_000)
        .payload(&payload)
        .to_vec()
}

/// A capture of packets with their times in microseconds.
fn capture(room: &Room, file: &str, packets: &[(u64, Vec<u8>)]) -> String {
    let path = room.path(file);
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("lan").unwrap();
    for (micros, frame) in packets {
        writer.write(&Record::new(Nanos::from_secs(1_000) + Nanos(micros * 1_000), frame)).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn number(json: &Value, path: &str) -> u64 {
    json.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {json:#}"))
}

/// True to the percent that percentiles are exact to.
#[track_caller]
fn assert_near(found: u64, exact: u64) {
    assert!(found.abs_diff(exact) * 100 <= exact, "{found}, not {exact}");
}

/// Three packets of 1,000 bytes at once, at 8 Mbit/s: they depart after 0, 1 and 2 ms. One more comes after 10 ms, when the first
/// three have left.
#[test]
fn a_replay_measures_delay_variation_and_rate_of_queues_and_classes() {
    let room = Room::new("measured");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[class]]\nname = \"all\"\nfrom = \"lan\"\n[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\n\
             overhead = \"ip\"\nlimit = 2\n"
        ),
    );
    let one = |at| (at, packet(5, 1_000, 0, 0));
    // The first is taken at once, two wait, and the fourth finds no room.
    let lan = capture(&room, "a.pcapng", &[one(0), one(0), one(0), one(0), one(10_000)]);
    let run = wirerate(&["replay", &policy, &lan, "--json"]).exits(0);
    let json = run.json();
    let queue = &json["queues"][0];
    let (sent, full) = (number(queue, "/frames"), number(queue, "/full"));
    assert_eq!(sent + full, 5, "{queue:#}");
    assert_eq!(number(queue, "/lost/queue-full"), full);
    // Of those at once some departed a millisecond after another.
    let longest = (sent - 2) * 1_000_000;
    assert_eq!(
        (number(queue, "/delay_ns/max"), number(queue, "/ipdv_ns/max")),
        (longest, longest.max(1_000_000))
    );
    assert_near(number(queue, "/delay_ns/p99"), longest);
    // All of it in 10 ms.
    assert_eq!(number(queue, "/rate_bps"), sent * 1_000 * 8 * 100);
    let class = &json["classes"]["all"];
    assert_eq!(class["delay_ns"], queue["delay_ns"]);
    assert_eq!((number(class, "/sent"), number(class, "/sent_bytes")), (sent, sent * 1_000));
    assert_eq!(number(class, "/lost/queue-full"), full);
    let table = wirerate(&["replay", &policy, &lan]).exits(0).out;
    assert!(
        table.contains("RFC 3393") && table.contains("up (on wan)") && table.contains("Mbit/s"),
        "{table}"
    );
}

/// Programs that read JSON find every key of a queue and of a class without packets, too.
#[test]
fn a_queue_and_a_class_without_packets_have_all_figures() {
    let room = Room::new("measured-none");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[class]]\nname = \"none\"\nprotocol = \"tcp\"\n[[class]]\nname = \"all\"\n[[queue]]\nname = \"root\"\non = \"wan\"\n[[queue]]\nname = \"calls\"\nin = \"root\"\nphb = \"ef\"\n[[queue]]\nname = \"rest\"\nin = \"root\"\n"
        ),
    );
    let lan = capture(&room, "a.pcapng", &[(0, packet(5, 1_000, 0, 0))]);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let keys =
        |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<String>>());
    assert_eq!(json["queues"][0]["name"], "calls");
    assert_eq!(keys(&json["queues"][0]), keys(&json["queues"][1]));
    assert_eq!(keys(&json["classes"]["none"]), keys(&json["classes"]["all"]));
    assert_eq!(
        (number(&json["queues"][0], "/rate_bps"), number(&json["queues"][0], "/delay_ns/max")),
        (0, 0)
    );
}

/// The one queue of an interface with a rate and without a tree is measured.
#[test]
fn the_queue_of_a_port_without_a_tree_is_measured_where_it_has_a_rate() {
    let room = Room::new("measured-port");
    let wan = "zone = \"wan\"\n";
    let policy = room.write("policy.toml", INTERFACES.replace(wan, &format!("{wan}rate = \"8 Mbit/s\"\n")));
    let one = |at| (at, packet(5, 1_000, 0, 0));
    let lan = capture(&room, "a.pcapng", &[one(0), one(0), one(0)]);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let queue = &json["queues"][0];
    assert_eq!((&queue["interface"], &queue["name"]), (&Value::from("wan"), &Value::Null));
    assert_eq!(number(queue, "/frames"), 3);
    // 1,038 bytes each with what Ethernet adds.
    assert_eq!(number(queue, "/delay_ns/max"), 2 * 1_038 * 1_000);
    // Without a rate nothing waits, and there is nothing to tell.
    let policy = room.write("plain.toml", INTERFACES);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    assert_eq!(json["queues"], Value::Array(Vec::new()));
}

/// A download's delay in the tree of its ingress, and then before its port, count apart.
#[test]
fn a_packet_that_passes_two_trees_is_measured_in_each() {
    let room = Room::new("measured-twice");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[queue]]\nname = \"down\"\nfrom = \"lan\"\nrate = \"8 Mbit/s\"\noverhead = \"ip\"\n[[queue]]\nname = \
             \"up\"\non = \"wan\"\nrate = \"4 Mbit/s\"\noverhead = \"ip\"\n"
        ),
    );
    let one = |at| (at, packet(5, 1_000, 0, 0));
    let lan = capture(&room, "a.pcapng", &[one(0), one(0), one(0)]);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let queues = json["queues"].as_array().unwrap();
    let of = |name: &str| queues.iter().find(|queue| queue["name"] == name).unwrap();
    // They leave the first at 0, 1, 2 ms, and the second at 0, 2, 4 ms.
    assert_eq!(number(of("down"), "/delay_ns/max"), 2_000_000);
    assert_eq!(number(of("up"), "/delay_ns/max"), 2_000_000);
}

/// An overload of packets that know ECN: marks of the queue are those of the classes, and so are losses.
#[test]
fn marks_and_losses_of_a_queue_are_those_of_its_classes() {
    let room = Room::new("measured-marks");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[class]]\nname = \"even\"\nsource = \"192.168.1.4\"\n[[class]]\nname = \"odd\"\nsource = \
             \"192.168.1.5\"\n[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\ndrop = \"codel\"\necn = true\nlimit = 150\n"
        ),
    );
    let packets: Vec<_> =
        (0..2_000).map(|n| (n * 700, packet(4 + (n % 2) as u8, 1_000, 0, (n % 3) as u8))).collect();
    let lan = capture(&room, "a.pcapng", &packets);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let (queue, classes) = (&json["queues"][0], json["classes"].as_object().unwrap());
    let sum = |path: &str| {
        classes.values().map(|class| class.pointer(path).and_then(Value::as_u64).unwrap_or(0)).sum::<u64>()
    };
    for path in ["/marked", "/lost/queue-full", "/lost/early-drop"] {
        assert!(sum(path) > 0, "{path}: {json:#}");
    }
    assert_eq!(sum("/marked"), number(queue, "/marked"));
    assert_eq!(
        (sum("/lost/queue-full"), sum("/lost/early-drop")),
        (number(queue, "/full"), number(queue, "/early"))
    );
    assert_eq!(sum("/sent"), number(queue, "/frames"));
    let lost: u64 = queue["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(lost, number(queue, "/full") + number(queue, "/early"));
}

/// Packets that a meter marks count with its class, beside those that the queue would have marked, and not as having come so.
#[test]
fn marks_of_a_meter_are_those_of_its_class() {
    let room = Room::new("metered-marks");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[class]]\nname = \"all\"\nmeter = \"all\"\n[[meter]]\nname = \"all\"\nrate = \"8 kbit/s\"\nburst = \
             2000\noverhead = \"ip\"\nred = \"ecn\"\n[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\n"
        ),
    );
    // The bucket has room for two; the others are marked, but for one that has met congestion before.
    let packets: Vec<_> = (0..20).map(|n| (n, packet(4, 1_000, 0, if n == 19 { 3 } else { 2 }))).collect();
    let lan = capture(&room, "a.pcapng", &packets);
    let json = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let class = &json["classes"]["all"];
    assert_eq!((number(class, "/sent"), number(class, "/marked")), (20, 17), "{json:#}");
    assert_eq!(number(&json["queues"][0], "/marked"), 0);
}

/// No packet is counted for a fragment that finds no room, so a note tells of them.
#[test]
fn fragments_that_find_no_room_are_told() {
    let room = Room::new("lost-fragments");
    let wan = "zone = \"wan\"\n";
    let text = INTERFACES.replace(wan, &format!("{wan}mtu = 576\nrate = \"8 kbit/s\"\n"));
    let lan = capture(&room, "a.pcapng", &[(0, packet(5, 1_000, 0, 0))]);
    let note = |queue: u32| {
        let policy = room.write("policy.toml", format!("{text}[limit]\nqueue = {queue}\n"));
        wirerate(&["replay", &policy, &lan]).exits(0).out
    };
    let told = note(1);
    assert!(told.contains("1 further fragment was dropped, for want of room in a queue"), "{told}");
    let told = note(2);
    assert!(!told.contains("want of room"), "{told}");
    assert!(told.contains("1 frame was sent beyond those that came in: further fragments"), "{told}");
}

#[test]
fn a_plot_has_axes_units_and_a_legend() {
    let room = Room::new("plotted");
    let leaves: String = (0..12)
        .map(|leaf| {
            format!(
                "[[class]]\nname = \"c{leaf}\"\nsource = \"192.168.1.{}\"\n[[queue]]\nname = \"q{leaf}\"\nin = \"up\"\nclass = \
                 \"c{leaf}\"\n",
                10 + leaf
            )
        })
        .collect();
    let policy = room.write(
        "policy.toml",
        format!("{INTERFACES}[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\n{leaves}[[queue]]\nname = \"rest\"\nin = \"up\"\n"),
    );
    // The first sends most, and so on: those who send least are drawn together.
    let mut packets: Vec<_> = (0..12_u64)
        .flat_map(|host| {
            (0..100 - 5 * host).map(move |n| (n * 10_000 + host, packet(10 + host as u8, 200, 0, 0)))
        })
        .collect();
    packets.sort();
    let lan = capture(&room, "a.pcapng", &packets);
    let svg = room.path("plot.svg");
    wirerate(&["replay", &policy, &lan, "--plot", &svg]).exits(0);
    let plot = std::fs::read_to_string(&svg).unwrap();
    for text in
        ["Mbit/s", "delay, ms", "packets waiting", "lost a second", "seconds", "policy.toml: a.pcapng"]
    {
        assert!(plot.contains(text), "{text}");
    }
    let names: BTreeSet<&str> = (0..12)
        .filter_map(|leaf| {
            let name = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11"][leaf];
            plot.contains(&format!("{name} (on wan)")).then_some(name)
        })
        .collect();
    assert_eq!(names, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"].into());
    assert!(plot.contains("5 others"), "the rest is one curve");
    assert!(plot.matches("<polyline").count() > 20);
    wirerate(&["replay", &policy, &lan, "--plot", &svg, "--by", "class"]).exits(0);
    let by_class = std::fs::read_to_string(&svg).unwrap();
    assert!(by_class.contains("c0") && !by_class.contains("(on wan)"));
    // The same input draws the same, and a capture is never drawn over.
    wirerate(&["replay", &policy, &lan, "--plot", &svg]).exits(0);
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), plot);
    let run = wirerate(&["replay", &policy, &lan, "--plot", &lan]).exits(2);
    assert!(run.err.contains("would be written over"), "{}", run.err);
    wirerate(&["replay", &policy, &lan, "--by", "class"]).exits(2);
}

/// Six packets at once and one later: which wait for how long, and which find no room.
#[test]
fn explain_tells_backlog_delay_and_drop_of_a_captured_packet() {
    let room = Room::new("explained");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[class]]\nname = \"all\"\nfrom = \"lan\"\nmeter = \"all\"\n[[meter]]\nname = \"all\"\nrate = \"8 \
             Mbit/s\"\nburst = 5500\n[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\noverhead = \"ip\"\nlimit = 3\n"
        ),
    );
    let one = |at| (at, packet(5, 1_000, 0, 0));
    // The first waits for nothing; the meter has tokens for five, of which the queue has room for three.
    let lan = capture(&room, "a.pcapng", &[one(0), one(0), one(0), one(0), one(0), one(0), one(20_000)]);
    let replayed = wirerate(&["replay", &policy, &lan, "--json"]).exits(0).json();
    let sent = number(&replayed["queues"][0], "/frames");
    let explain = |number: u32| {
        let packet = format!("{lan}:{number}");
        (
            wirerate(&["explain", &policy, &packet, "--json"]).exits(0).json(),
            wirerate(&["explain", &policy, &packet]).exits(0).out,
        )
    };
    let all: Vec<(Value, String)> = (1..=7).map(explain).collect();
    // What is told of each adds up to what the replay counts.
    let departs: Vec<Option<u64>> = all.iter().map(|(json, _)| json["delay_ns"].as_u64()).collect();
    assert_eq!(departs.iter().flatten().count() as u64, sent, "{departs:?}");
    assert_eq!(departs.iter().flatten().max(), Some(&number(&replayed["queues"][0], "/delay_ns/max")));
    let (json, text) = &all[2];
    assert_eq!((&json["class"], &json["colour"]), (&Value::from("all"), &Value::from("green")));
    assert_eq!(
        (number(json, "/meter/committed/tokens"), number(json, "/meter/committed/depth")),
        (3_500, 5_500)
    );
    assert!(text.contains("it found tokens for 3,500 of 5,500 bytes"), "{text}");
    assert_eq!((&json["queues"][0]["name"], number(json, "/queues/0/limit")), (&Value::from("up"), 3));
    assert_eq!((number(json, "/queues/0/waiting"), number(json, "/queues/0/waiting_bytes")), (2, 2_000));
    assert_eq!(json["delay_ns"], 2_000_000);
    assert!(
        text.contains("finds 2 packets, 2.0 kB, in queue \"up\" (on wan); limit 3 packets, drop tail"),
        "{text}"
    );
    assert!(text.contains("It departs 2.000 ms after its arrival"), "{text}");
    // The fifth finds no room, and is dropped though the pipeline let it go.
    let (json, text) = &all[4];
    assert_eq!(
        (&json["verdict"], &json["reason"]["name"]),
        (&Value::from("dropped"), &Value::from("queue-full"))
    );
    assert!(
        json["sent"].as_array().unwrap().is_empty() && text.contains("is dropped on arrival: queue-full"),
        "{text}"
    );
    // The bound is the leaf's own.
    let remedy = json["reason"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("`limit` of the [[queue]] \"up\"") && !remedy.contains("[limit]"), "{remedy}");
    assert!(text.contains(remedy), "{text}");
    // For the sixth the meter has no tokens: it comes to no queue.
    let (json, _) = &all[5];
    assert_eq!((&json["reason"]["name"], &json["colour"]), (&Value::from("policed"), &Value::from("red")));
    assert!(json["queues"].as_array().unwrap().is_empty() && json["delay_ns"].is_null());
    let (json, text) = &all[6];
    assert_eq!((number(json, "/queues/0/waiting"), &json["delay_ns"]), (0, &Value::from(0)));
    assert!(text.contains("finds nothing in queue \"up\"") && text.contains("It departs at once"), "{text}");
}

/// A queue may be full by bytes; that of a shape has no key of its own, and a port without a tree has `queue` under [limit].
#[test]
fn explain_advises_on_the_queue_that_is_full() {
    let room = Room::new("explained-full");
    let packets: Vec<_> = (0..1_100).map(|n| (n, packet(5, 1_000, 0, 0))).collect();
    let lan = capture(&room, "a.pcapng", &packets);
    let wan = "zone = \"wan\"\n";
    let remedy = |name: &str, text: &str, number: u32| {
        let policy = room.write(name, text);
        let json = wirerate(&["explain", &policy, &format!("{lan}:{number}"), "--json"]).exits(0).json();
        assert_eq!(json["reason"]["name"], "queue-full", "{json:#}");
        json["reason"]["remedy"].as_str().unwrap().to_owned()
    };
    let tree = "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"1 Mbit/s\"\n[[queue]]\nname = \"rest\"\nin = \"root\"\nlimit-bytes = 3000\n";
    let by_bytes = remedy("bytes.toml", &format!("{INTERFACES}{tree}"), 9);
    assert!(by_bytes.contains("`limit-bytes` of the [[queue]] \"rest\""), "{by_bytes}");
    let shape = remedy("shape.toml", &format!("{INTERFACES}[shape.wan]\nrate = \"1 Mbit/s\"\n"), 50);
    assert!(shape.contains("\"wan-up-best-effort\"") && !shape.contains("[[queue]]"), "{shape}");
    let port = INTERFACES.replace(wan, &format!("{wan}rate = \"1 Mbit/s\"\n"));
    let port = remedy("port.toml", &format!("{port}[limit]\nqueue = 4\n"), 9);
    assert!(port.contains("`queue` under [limit]"), "{port}");
}

/// A packet that waits for others is passed by those of a higher priority that come after it.
#[test]
fn explain_follows_a_packet_past_those_that_come_later() {
    let room = Room::new("explained-later");
    let policy = room.write(
        "policy.toml",
        format!(
            "{INTERFACES}[[queue]]\nname = \"up\"\non = \"wan\"\nrate = \"8 Mbit/s\"\noverhead = \"ip\"\nscheduler = \"strict\"\n\
             [[queue]]\nname = \"first\"\nin = \"up\"\nphb = \"ef\"\n[[queue]]\nname = \"rest\"\nin = \"up\"\n"
        ),
    );
    let packets = [
        (0, packet(5, 1_000, 0, 0)),
        (100, packet(5, 1_000, 0, 0)),
        (500, packet(6, 1_000, 46, 0)),
        (600, packet(6, 1_000, 46, 0)),
    ];
    let lan = capture(&room, "a.pcapng", &packets);
    let json = wirerate(&["explain", &policy, &format!("{lan}:2"), "--json"]).exits(0).json();
    // It would go at 1 ms, but two others of EF go then: it departs at 3 ms, 2.9 after it came.
    assert_eq!(
        (&json["delay_ns"], &json["queues"][0]["name"]),
        (&Value::from(2_900_000), &Value::from("rest"))
    );
    // In words it is the first and only one.
    let json = wirerate(&["explain", &policy, "lan udp 192.168.1.5:1 > 203.0.113.9:2 dscp ef", "--json"])
        .exits(0)
        .json();
    assert_eq!((&json["delay_ns"], &json["queues"][0]["name"]), (&Value::from(0), &Value::from("first")));
}

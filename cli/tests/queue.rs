//! Queues and classes, as people see them: `wirerate check --draw`.
#![allow(clippy::unwrap_used)]

mod run;

use run::{Room, root, wirerate};

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

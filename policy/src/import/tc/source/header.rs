//! Beginnings of objects: device, handle, parent, kind. What follows the kind is left to the kind.

use super::{Header, Object, Parent, Subject, Verb};
use crate::import::note::{Origin, Why};
use crate::import::tc::json::Json;
use crate::import::tc::unit::{Handle, number};

/// Listing that follows a command: its device and parent.
pub(super) struct Shown {
    pub(super) device: Option<String>,
    pub(super) parent: Parent,
}

/// Verb of a command; the words that show are none.
pub(super) fn verb(word: &str) -> Option<Verb> {
    match word {
        "add" | "create" | "append" => Some(Verb::Add),
        "replace" => Some(Verb::Replace),
        "change" | "chg" => Some(Verb::Change),
        "del" | "delete" => Some(Verb::Delete),
        // `show` and `list` are looked at before.
        "show" | "list" | "lst" | "ls" | "get" | "link" => Some(Verb::Is),
        _ => None,
    }
}

fn subject(word: &str) -> Option<Subject> {
    match word {
        "qdisc" => Some(Subject::Qdisc),
        "class" => Some(Subject::Class),
        "filter" | "chain" => Some(Subject::Filter),
        _ => None,
    }
}

/// An object without anything in it yet.
fn empty(subject: Subject, verb: Verb) -> Object {
    Object {
        origin: Origin::Line(0),
        text: String::new(),
        verb,
        subject,
        device: None,
        kind: String::new(),
        handle: None,
        parent: Parent::Unsaid,
        filter: Header::default(),
        sizes: Vec::new(),
        words: Vec::new(),
    }
}

fn value(word: &str) -> Why {
    Why::Value(word.to_owned())
}

fn handle(word: &str) -> Result<Handle, Why> {
    Handle::parse(word).ok_or_else(|| value(word))
}

/// Parent by its handle; those of incoming packets, and of outgoing ones before the root, have a name.
fn parent(word: &str) -> Result<Parent, Why> {
    match word {
        "root" => return Ok(Parent::Root),
        "none" => return Ok(Parent::Unsaid),
        _ => {}
    }
    Ok(match handle(word)? {
        Handle { major: 0xffff, minor: 0 | 0xfff1 | 0xfff2 } => Parent::Ingress,
        Handle { major: 0xffff, minor: 0xfff3 } => Parent::Egress,
        Handle { major: 0xffff, minor: 0xffff } => Parent::Root,
        other => Parent::Of(other),
    })
}

/// Reads a line of a listing.
pub(super) fn listed(words: &[String]) -> Result<Object, Why> {
    let mut words = words.iter().map(String::as_str).peekable();
    let mut next = || words.next();
    let mut first = next().ok_or(Why::Syntax)?;
    // `tc monitor` and `-echo` begin with what happened.
    if matches!(first, "added" | "replaced") {
        first = next().ok_or(Why::Syntax)?;
    }
    let subject = subject(first).ok_or(Why::Syntax)?;
    let mut object = empty(subject, Verb::Is);
    if subject != Subject::Filter {
        object.kind = next().ok_or(Why::Syntax)?.to_owned();
        let id = next().ok_or(Why::Syntax)?;
        object.handle = Some(handle(id).map_err(|_| Why::Syntax)?);
    }
    let mut words = words.collect::<Vec<_>>().into_iter().peekable();
    loop {
        match words.peek().copied() {
            Some("dev") => object.device = words.nth(1).map(str::to_owned),
            Some("parent") => object.parent = parent(words.nth(1).ok_or(Why::Syntax)?)?,
            Some("root") => {
                words.next();
                object.parent = Parent::Root;
            }
            Some("ingress") if subject == Subject::Filter => {
                words.next();
                object.parent = Parent::Ingress;
            }
            Some("egress") if subject == Subject::Filter => {
                words.next();
                object.parent = Parent::Egress;
            }
            Some("refcnt" | "leaf" | "ingress_block" | "egress_block") if subject != Subject::Filter => {
                words.nth(1);
            }
            Some("offloaded") => drop(words.next()),
            Some("block") => return Err(Why::Feature("block".to_owned())),
            Some("protocol") => object.filter.protocol = words.nth(1).map(str::to_owned),
            Some("pref") => {
                let word = words.nth(1).ok_or(Why::Syntax)?;
                object.filter.pref = Some(number(word).ok_or_else(|| value(word))?);
            }
            _ => break,
        }
    }
    if subject == Subject::Filter {
        object.kind = words.next().ok_or(Why::Syntax)?.to_owned();
        while let Some(word) = words.peek().copied() {
            match word {
                "chain" => object.filter.chain = words.nth(1).and_then(number),
                "fh" | "handle" => object.filter.id = words.nth(1).map(str::to_owned),
                _ => break,
            }
        }
    }
    object.words = words.map(str::to_owned).collect();
    Ok(object)
}

/// Reads an object of `tc -j`.
pub(super) fn of_json(json: &Json) -> Result<Object, Why> {
    let Json::Object(pairs) = json else { return Err(Why::Syntax) };
    let word = |key: &str| json.get(key).and_then(Json::word);
    let is_filter = ["protocol", "pref", "chain"].iter().any(|key| json.get(key).is_some());
    let (subject, kind) = match (word("class"), word("kind")) {
        (Some(kind), _) => (Subject::Class, kind),
        (None, Some(kind)) if is_filter => (Subject::Filter, kind),
        (None, Some(kind)) => (Subject::Qdisc, kind),
        (None, None) => return Err(Why::Syntax),
    };
    let mut object = empty(subject, Verb::Is);
    object.kind = kind.to_owned();
    object.device = word("dev").map(str::to_owned);
    if let Some(id) = word("handle").filter(|_| subject != Subject::Filter) {
        object.handle = Some(handle(id).map_err(|_| Why::Syntax)?);
    }
    let is = |key: &str| matches!(json.get(key), Some(Json::Bool(true)));
    object.parent = match word("parent") {
        Some(word) => parent(word)?,
        None if is("root") => Parent::Root,
        None if is("ingress") => Parent::Ingress,
        None if is("egress") => Parent::Egress,
        None => Parent::Unsaid,
    };
    if json.get("block").is_some() {
        return Err(Why::Feature("block".to_owned()));
    }
    let options = json.get("options");
    match subject {
        Subject::Class => {
            // A class has its options beside the rest.
            let rest = |(key, _): &&(String, Json)| {
                !matches!(key.as_str(), "class" | "handle" | "dev" | "root" | "parent" | "leaf" | "stats")
            };
            object.words = Json::Object(pairs.iter().filter(rest).cloned().collect()).words();
        }
        Subject::Qdisc => {
            object.words = options.map(Json::words).unwrap_or_default();
            object.sizes = json.get("stab").map(Json::words).unwrap_or_default();
        }
        Subject::Filter => {
            object.filter = Header {
                protocol: word("protocol").map(str::to_owned),
                pref: word("pref").and_then(number),
                chain: word("chain").and_then(number),
                id: ["fh", "handle"]
                    .iter()
                    .find_map(|key| options?.get(key))
                    .and_then(Json::word)
                    .map(str::to_owned),
            };
            let Some(Json::Object(pairs)) = options else { return Ok(object) };
            let rest = |(key, _): &&(String, Json)| !matches!(key.as_str(), "fh" | "handle");
            object.words = Json::Object(pairs.iter().filter(rest).cloned().collect()).words();
        }
    }
    Ok(object)
}

/// Position of the subject of a command, behind the options of tc itself.
fn start(words: &[String]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        at += if matches!(word.as_str(), "-n" | "-net" | "-netns" | "-cf" | "-conf") { 2 } else { 1 };
    }
    (at < words.len()).then_some(at)
}

/// Reads a command that shows; `None` for all others.
pub(super) fn shown(words: &[String]) -> Option<Shown> {
    let words = &words[start(words)?..];
    subject(words.first()?)?;
    let is_shown = match words.get(1).map(String::as_str) {
        None => true,
        Some(word) => verb(word) == Some(Verb::Is) && word != "link",
    };
    if !is_shown {
        return None;
    }
    let mut shown = Shown { device: None, parent: Parent::Unsaid };
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1);
        match word.as_str() {
            "dev" => shown.device = next.cloned(),
            "ingress" => shown.parent = Parent::Ingress,
            "egress" => shown.parent = Parent::Egress,
            "root" => shown.parent = Parent::Root,
            "parent" => shown.parent = next.and_then(|word| parent(word).ok()).unwrap_or_default(),
            _ => {}
        }
    }
    Some(shown)
}

/// Reads a command that adds, changes or deletes.
pub(super) fn command(words: &[String]) -> Result<Object, Why> {
    // A batch of commands in a file of its own.
    let Some(at) = start(words) else { return Err(Why::Script) };
    let words = &words[at..];
    let Some(subject) = subject(&words[0]).filter(|_| words[0] != "chain") else {
        return Err(Why::Feature(words[0].clone()));
    };
    let verb = words.get(1).and_then(|word| verb(word)).filter(|verb| *verb != Verb::Is);
    let mut object = empty(subject, verb.ok_or(Why::Syntax)?);
    let mut at = 2;
    while let Some(word) = words.get(at).map(String::as_str) {
        let next = words.get(at + 1).map(String::as_str).ok_or(Why::Syntax);
        at += 2;
        match word {
            "dev" => object.device = Some(next?.to_owned()),
            "root" => {
                object.parent = Parent::Root;
                at -= 1;
            }
            "ingress" | "clsact" => {
                object.parent = Parent::Ingress;
                at -= 1;
                // For a qdisc it is the kind, too.
                if subject == Subject::Qdisc {
                    object.kind = word.to_owned();
                }
            }
            "egress" if subject == Subject::Filter => {
                object.parent = Parent::Egress;
                at -= 1;
            }
            "parent" => object.parent = parent(next?)?,
            "handle" if subject == Subject::Filter => object.filter.id = Some(next?.to_owned()),
            "handle" | "classid" => object.handle = Some(handle(next?)?),
            "protocol" | "proto" if subject == Subject::Filter => {
                object.filter.protocol = Some(next?.to_owned())
            }
            "prio" | "pref" | "preference" | "priority" if subject == Subject::Filter => {
                let word = next?;
                object.filter.pref = Some(number(word).ok_or_else(|| value(word))?);
            }
            "chain" if subject == Subject::Filter => {
                object.filter.chain = Some(number(next?).ok_or(Why::Syntax)?)
            }
            "block" => return Err(Why::Feature("block".to_owned())),
            "estimator" => at += 1,
            "stab" => {
                at -= 1;
                while let Some(pair) = words.get(at..at + 2) {
                    if !SIZES.contains(&pair[0].as_str()) {
                        break;
                    }
                    object.sizes.extend_from_slice(pair);
                    at += 2;
                }
            }
            kind => {
                object.kind = kind.to_owned();
                object.words = words[at - 1..].to_vec();
                break;
            }
        }
    }
    if object.device.is_none() {
        return Err(Why::Syntax);
    }
    Ok(object)
}

/// Words of a size table.
const SIZES: &[&str] = &["linklayer", "overhead", "mpu", "mtu", "tsize"];

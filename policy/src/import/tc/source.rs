//! The objects of a source: qdiscs, classes and filters, as `tc` lists them, as JSON, or as commands add them.

use super::json::Json;
use super::script::{self, Command, Variables};
use super::unit::Handle;
use crate::import::Untranslated;
use crate::import::note::{Origin, Why};

mod header;

/// An object, or a command about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) origin: Origin,
    pub(super) text: String,
    pub(super) verb: Verb,
    pub(super) subject: Subject,
    /// Device that the object names, or the listing that it is in.
    pub(super) device: Option<String>,
    /// Kind: `htb`, `u32`, ...
    pub(super) kind: String,
    pub(super) handle: Option<Handle>,
    pub(super) parent: Parent,
    /// Of a filter: protocol, preference and chain.
    pub(super) filter: Header,
    /// Size table of a qdisc (`stab`).
    pub(super) sizes: Vec<String>,
    /// Options of the kind.
    pub(super) words: Vec<String>,
}

/// Verb of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// No command: the object is there.
    Is,
    Add,
    Replace,
    Change,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Qdisc,
    Class,
    Filter,
}

/// Place of an object in its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Parent {
    /// The source does not say.
    #[default]
    Unsaid,
    Root,
    /// Incoming packets.
    Ingress,
    /// Outgoing packets, before the root qdisc (`clsact`).
    Egress,
    Of(Handle),
}

/// Words of a filter before its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) protocol: Option<String>,
    pub(super) pref: Option<u32>,
    pub(super) chain: Option<u32>,
    /// Identifier among the filters of a preference, in the source's words.
    pub(super) id: Option<String>,
}

/// A source, taken apart.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) objects: Vec<Object>,
    /// Lines that are no objects, and ought to be.
    pub(super) strange: Vec<Untranslated>,
}

/// Reads a source of at most `most` objects; `None` where there are more.
pub(super) fn read(text: &str, most: usize) -> Option<Source> {
    let mut reader = Reader { text, at: 0, line: 1, source: Source::default(), context: Context::default() };
    while reader.at < text.len() {
        reader.step();
        if reader.source.objects.len() + reader.source.strange.len() > most {
            return None;
        }
    }
    Some(reader.source)
}

/// Device and parent that a listing is of: what the command before it said.
#[derive(Debug, Default)]
struct Context {
    device: Option<String>,
    parent: Parent,
    variables: Variables,
    /// True if the line before was an object of a listing: indented lines belong to it.
    is_listing: bool,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Number of the line at `at`, from 1.
    line: u32,
    source: Source,
    context: Context,
}

impl<'a> Reader<'a> {
    /// Reads an array of JSON, or a line.
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        if rest.trim_start_matches([' ', '\t']).starts_with(['[', '{']) {
            self.context.is_listing = false;
            return self.json();
        }
        let number = self.line;
        let line = self.line();
        if line.trim().is_empty() {
            return;
        }
        if line.starts_with([' ', '\t']) && self.context.is_listing {
            return self.continuation(line);
        }
        let line = line.trim();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_listing = matches!(words[0], "qdisc" | "class" | "filter" | "chain" | "added" | "replaced")
            && words.get(1).is_some_and(|word| header::verb(word).is_none());
        self.context.is_listing = is_listing;
        if is_listing {
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            let object = header::listed(&words);
            return self.add(object, number, line);
        }
        self.script(number, line);
    }

    /// Takes the next line.
    fn line(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
        self.at += length;
        self.line = self.line.saturating_add(1);
        rest[..length].trim_end_matches(['\n', '\r'])
    }

    /// Goes on to a position further on in the text.
    fn skip(&mut self, to: usize) {
        let lines = self.text[self.at..to].bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at = to;
    }

    /// Reads an array of objects, or one object.
    fn json(&mut self) {
        let mut is_list = false;
        let is_gap = |c: char| c.is_whitespace() || c == '[' || c == ',' || c == ']';
        loop {
            let rest = &self.text[self.at..];
            let gap = rest.find(|c| !is_gap(c)).unwrap_or(rest.len());
            let closed = rest[..gap].find(']');
            is_list |= rest[..gap].contains('[');
            if let Some(closed) = closed {
                self.skip(self.at + closed + 1);
                // What else is on the line of the end is none of ours.
                if self.text[self.at..].lines().next().is_some_and(|line| line.trim().is_empty()) {
                    self.line();
                }
                return;
            }
            self.skip(self.at + gap);
            let rest = &self.text[self.at..];
            if !rest.starts_with('{') {
                if is_list && rest.is_empty() {
                    // Cut off: who knows what came after.
                    self.miss(self.line, "[", Why::Syntax);
                } else if is_list {
                    self.strange();
                }
                return;
            }
            let number = self.line;
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
            let Some(Ok(value)) = stream.next() else { return self.strange() };
            let end = stream.byte_offset();
            let text = rest[..end].split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            self.skip(self.at + end);
            // `tc -j` has an empty object for what it has nothing to say of.
            if value != Json::Object(Vec::new()) {
                self.add(header::of_json(&value), number, &text);
            }
        }
    }

    /// Reports the line, or the rest of it.
    fn strange(&mut self) {
        let number = self.line;
        let line = self.line().trim().to_owned();
        self.miss(number, &line, Why::Syntax);
    }

    fn miss(&mut self, number: u32, line: &str, why: Why) {
        let untranslated =
            Untranslated { origin: Origin::Line(number), text: shortened(line), why, before: None };
        self.source.strange.push(untranslated);
    }

    fn add(&mut self, object: Result<Object, Why>, number: u32, text: &str) {
        match object {
            Ok(mut object) => {
                object.origin = Origin::Line(number);
                object.text = shortened(text);
                if object.verb == Verb::Is {
                    object.device = object.device.or_else(|| self.context.device.clone());
                    if object.subject == Subject::Filter && object.parent == Parent::Unsaid {
                        object.parent = self.context.parent;
                    }
                }
                self.source.objects.push(object);
            }
            Err(why) => self.miss(number, text, why),
        }
    }

    /// Adds an indented line to the filter, or size table, that it belongs to.
    fn continuation(&mut self, line: &str) {
        let Some(object) = self.source.objects.last_mut() else { return };
        let words = line.split_ascii_whitespace().map(str::to_owned);
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        match object.subject {
            Subject::Filter if STATISTICS.contains(&first) => {}
            Subject::Filter => object.words.extend(words),
            Subject::Qdisc if first == "linklayer" => object.sizes.extend(words),
            _ => {}
        }
    }

    /// Reads the commands of a line, and of the lines that it is continued on.
    fn script(&mut self, number: u32, line: &str) {
        let mut line = line.to_owned();
        while line.ends_with('\\') && self.at < self.text.len() {
            line.pop();
            line.push_str(self.line().trim());
        }
        // A prompt, and what root's is: a comment, but that it is followed by `tc`.
        let shown = line.trim_start_matches(['$', '#', '>', ' ']);
        let is_prompt = line.starts_with(['$', '#', '>']) && shown.starts_with("tc ");
        let command = if is_prompt { shown } else { line.as_str() };
        for command in script::commands(command, &mut self.context.variables) {
            self.command(number, &line, &command, is_prompt);
        }
    }

    fn command(&mut self, number: u32, line: &str, command: &Command, is_prompt: bool) {
        let mut words = command.words();
        // What runs the command, and what the shell itself does with the result.
        while words
            .first()
            .is_some_and(|word| matches!(word.as_str(), "sudo" | "exec" | "!" | "then" | "do" | "else"))
        {
            words = &words[1..];
        }
        let Some(first) = words.first() else { return };
        let program = first.rsplit('/').next().unwrap_or_default();
        let is_batch = matches!(program, "qdisc" | "class" | "filter")
            && words.get(1).is_some_and(|word| header::verb(word).is_some());
        if program != "tc" && !is_batch {
            if !HARMLESS.contains(&program) && !is_prompt {
                self.miss(number, line, if is_word(first) { Why::Script } else { Why::Syntax });
            }
            return;
        }
        let words = if is_batch { words } else { &words[1..] };
        if let Some(shown) = header::shown(words) {
            self.context.device = shown.device;
            self.context.parent = shown.parent;
            return;
        }
        if is_prompt {
            return;
        }
        match command {
            Command::Words(_) => self.add(header::command(words), number, line),
            Command::Unsure(_) => self.miss(number, line, Why::Script),
        }
    }
}

/// True for what may be the name of a command.
fn is_word(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./[(){}:".contains(c);
    !word.is_empty() && word.len() < 64 && word.chars().all(is_part) && !word.ends_with(':')
}

/// Beginnings of lines that say what an action has counted.
const STATISTICS: &[&str] = &["Action", "Sent", "backlog", "rate", "cookie", "hw_stats", "used_hw_stats"];

/// Commands that have no effect on queues.
const HARMLESS: &[&str] = &[
    "ip", "ifconfig", "modprobe", "insmod", "rmmod", "ethtool", "echo", "printf", "exit", "set", "sleep",
    "sysctl", "true", "false", ":", "logger", "return", "shift", "unset", "cd", "source", ".", "fi", "done",
    "esac", "}", "{",
];

/// Text of a report: long ones are cut.
fn shortened(text: &str) -> String {
    const MOST: usize = 500;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

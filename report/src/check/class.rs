//! Findings about traffic classes, as diagnostics.

use analysis::{Effort, EmptyClass, empty_classes};
use dataplane::tables::CompileError;
use policy::model::Class;
use policy::{Code, Diagnostic, Item, Lines, Policy};

/// Result of the analysis.
pub(super) struct Found {
    /// One for each finding.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Number of classes that were not settled.
    pub(super) open: usize,
}

/// Looks at the classes of a sound policy.
pub(super) fn of(policy: &Policy, lines: &Lines, effort: Effort<'_>) -> Result<Found, CompileError> {
    if policy.classes.is_empty() {
        return Ok(Found { diagnostics: Vec::new(), open: 0 });
    }
    let found = empty_classes(policy, effort)?;
    let class = |place: usize| policy.classes.get(place);
    let is_empty = |name: &String| {
        found.list.iter().filter_map(|empty| class(empty.class)).any(|class| class.name == *name)
    };
    let mut diagnostics: Vec<Diagnostic> = found
        .list
        .iter()
        .filter_map(|empty| Some(empty_class(empty, class(empty.class)?, policy, lines)))
        .collect();
    for (place, queue) in policy.queues.iter().enumerate() {
        if queue.classes.is_empty() || !queue.phbs.is_empty() || !queue.classes.iter().all(is_empty) {
            continue;
        }
        let message = format!("the queue \"{}\" never has packets: none is of its classes", queue.name);
        let hint = "change the order of the classes, or leave the queue out";
        let place = lines.place(Item::Queue(place));
        diagnostics.push(Diagnostic::new(Code::EmptyQueue, message).hint(hint).at(place));
    }
    Ok(Found { diagnostics, open: found.open.len() })
}

fn empty_class(empty: &EmptyClass, class: &Class, policy: &Policy, lines: &Lines) -> Diagnostic {
    let place = lines.place(Item::Class(empty.class));
    let name = &class.name;
    let by: Vec<&Class> = empty.by.iter().filter_map(|place| policy.classes.get(*place)).collect();
    let names: Vec<String> = by.iter().map(|class| format!("\"{}\"", class.name)).collect();
    let (why, hint) = match &names[..] {
        [] => (
            "no packet can show all that it asks for".to_owned(),
            "zones, interfaces and protocols exclude one another: change it, or leave it out",
        ),
        [one] => (format!("{one} matches all that it does"), "move it before the other, or leave it out"),
        [others @ .., last] => (
            format!("{} and {last} together match all that it does", others.join(", ")),
            "move it before the others, or leave it out",
        ),
    };
    let message = format!("no packet is of the class \"{name}\": {why}");
    let mut found = Diagnostic::new(Code::EmptyClass, message).hint(hint).at(place);
    for earlier in &empty.by {
        found = found.and("has its packets", lines.place(Item::Class(*earlier)));
    }
    found
}

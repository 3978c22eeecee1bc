use std::sync::Arc;

use miette::Diagnostic as _;

use crate::{Code, Diagnostic, Place, Source};

fn place(text: &str, what: &str) -> Place {
    let at = text.find(what).unwrap();
    Place::new(Arc::new(Source::new("p.toml", text)), at..at + what.len())
}

#[test]
fn json_says_what_and_where() {
    let text = "a = 1\nb = 2\n";
    let diagnostic = Diagnostic::<Code>::new(Code::UnknownKey, "unknown key `b`")
        .hint("did you mean `a`?")
        .at(Some(place(text, "b")))
        .and("here is `a`", Some(place(text, "a")));
    let json = serde_json::to_value(&diagnostic).unwrap();
    let expected = serde_json::json!({
        "code": "unknown-key", "severity": "error", "message": "unknown key `b`", "hint": "did you mean `a`?",
        "file": "p.toml", "line": 2, "column": 1,
        "related": [{"label": "here is `a`", "file": "p.toml", "line": 1, "column": 1}],
    });
    assert_eq!(json, expected);
}

#[test]
fn miette_finds_the_source_line() {
    let text = "a = 1\nb = 2\n";
    let diagnostic = Diagnostic::<Code>::new(Code::UnknownKey, "unknown key").at(Some(place(text, "b")));
    let label = diagnostic.labels().unwrap().next().unwrap();
    assert_eq!(label.offset(), 6);
    let found = diagnostic.source_code().unwrap().read_span(label.inner(), 1, 1).unwrap();
    assert_eq!(found.data(), b"a = 1\nb = 2\n");
    assert_eq!(found.name(), Some("p.toml"));
    assert_eq!(diagnostic.code().unwrap().to_string(), "unknown-key");
}

/// A drawing of whole lines would exceed the widest that can be drawn (65,535 columns).
#[test]
fn a_long_line_is_shown_around_the_place() {
    let many = "\u{e9}".repeat(70_000);
    for (text, what) in [
        (format!("{}b = 2", " ".repeat(70_000)), "b"),
        (format!("a = \"{many}\" b = 2"), "b = 2"),
        (format!("x = 1\na = \"{many}\"\nb = 2"), "\u{e9}\"\nb"),
        (format!("# {many}\nb = 2\n# {many}"), "b = 2"),
        (format!("a = [\"{many}\"]"), many.as_str()),
        (format!("a = 1, {many}, b = 2"), "b"),
    ] {
        let of = place(&text, what);
        let (line, column) = (of.line(), of.column());
        let diagnostic = Diagnostic::<Code>::new(Code::UnknownKey, "unknown key")
            .at(Some(of))
            .and("the first", Some(place(&text, &text[..1])));
        let mut drawn = String::new();
        let handler = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
        handler.render_report(&mut drawn, &diagnostic).unwrap();
        assert!(drawn.len() < 5_000, "{} bytes", drawn.len());
        assert!(drawn.contains("here"), "{drawn}");
        assert!(drawn.contains(&format!("p.toml:{line}:{column}]")), "{line}:{column} in {drawn}");
    }
}

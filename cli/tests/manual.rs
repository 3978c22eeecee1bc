//! Examples of the manual do what they say when they are pasted, in the project's directory.
#![allow(clippy::unwrap_used)]

mod run;

use std::path::Path;
use std::process::Command;

use run::{Room, root, wirerate};

/// Lines longer than this are broken on a terminal of the usual width, and a command with them.
const WIDTH: usize = 80;

/// The commands among the examples of `wirerate WORDS --help`, those that go on in the next line in one piece.
fn examples(words: &[&str]) -> Vec<String> {
    let help = wirerate(&[words, &["--help"]].concat()).exits(0).out;
    let examples = help.split("\nExamples:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut commands: Vec<String> = Vec::new();
    for line in examples.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide to be pasted: {line}");
        match commands.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.push('\n');
                last.push_str(line);
            }
            // A heading.
            _ if !line.starts_with(' ') => {
                assert!(line.ends_with(':'), "neither a command nor a heading: {line}")
            }
            _ => commands.push(line.to_owned()),
        }
    }
    assert!(commands.iter().all(|command| command.starts_with("  wirerate ")), "{commands:?}");
    commands
}

fn pasted(words: &[&str]) {
    let room = Room::new(&format!("manual-{}", words.join("-")));
    std::os::unix::fs::symlink(root().join("policies"), room.0.join("policies")).unwrap();
    for command in examples(words) {
        paste(&room, &command);
    }
}

/// Runs a command by the shell.
fn paste(room: &Room, command: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_wirerate")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-c", command]).current_dir(&room.0).env("PATH", path).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command}\n{said}");
    assert!(!output.stdout.is_empty() || command.contains(" > "), "nothing was printed by {command}");
}

#[test]
fn examples_of_all_there_is() {
    pasted(&[]);
}

#[test]
fn examples_of_runs() {
    pasted(&["chip", "run"]);
}

#[test]
fn examples_of_searches() {
    pasted(&["chip", "search"]);
}

#[test]
fn examples_of_sweeps() {
    pasted(&["chip", "sweep"]);
}

#[test]
fn examples_of_timelines() {
    pasted(&["chip", "trace"]);
}

#[test]
fn examples_of_lists() {
    pasted(&["chip", "list"]);
}

#[test]
fn examples_of_ciphers() {
    pasted(&["chip", "cipher"]);
}

/// The page says where its blocks go; its commands, indented, then run them.
#[test]
fn the_page_on_chips_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/add/chip.md")).unwrap();
    let room = Room::new("manual-page");
    std::os::unix::fs::symlink(root().join("policies"), room.0.join("policies")).unwrap();
    let mut blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    room.write("my-row.toml", blocks.pop().unwrap());
    room.write("my-chip.toml", blocks.join("\n"));
    let running = page.split("## Running it").nth(1).unwrap().replace("\\\n", "");
    let commands: Vec<&str> = running.lines().filter(|line| line.starts_with("    wirerate ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        paste(&room, command);
    }
}

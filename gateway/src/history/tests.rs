//! Selection of the policy that a gateway starts with.

use super::*;

/// Directory removed with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("wirerate-history-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn directory(&self) -> PathBuf {
        self.0.join("policy")
    }

    /// Starts a gateway's history with the content of the file.
    fn begin(&self) -> (History, Policy) {
        let file = self.0.join("policy.toml");
        let given = policy::load(&file).unwrap().policy.unwrap();
        let (mut history, policy) = History::begin(&self.directory(), &file, given);
        history.begun();
        (history, policy)
    }

    fn write(&self, zone: &str) {
        fs::write(self.0.join("policy.toml"), text(zone)).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(zone: &str) -> String {
    format!("[interface.east]\nzone = \"{zone}\"\naddresses = [\"192.0.2.1/24\"]\n")
}

fn policy(zone: &str) -> Policy {
    policy::parse(&text(zone), "policy").policy.unwrap()
}

fn by(comment: &str) -> By {
    By { uid: Some(0), name: None, comment: Some(comment.to_owned()) }
}

#[test]
fn an_applied_policy_survives_a_restart_until_the_file_changes() {
    let place = Place::new("restart");
    place.write("file");
    let (mut history, begun) = place.begin();
    assert_eq!(begun, policy("file"));
    history.keep_applied(&policy("applied"), by("for the new line"));
    let (history, begun) = place.begin();
    assert_eq!(begun, policy("applied"));
    let view = history.view(false);
    assert_eq!((view.in_force, view.entries.len()), (Some(2), 2));
    let last = &view.entries[1];
    assert_eq!((last.user.as_deref(), last.comment.as_deref()), (Some("root"), Some("for the new line")));
    assert_eq!(history.text(2), Some(policy("applied").to_string()));
    place.write("changed");
    let (history, begun) = place.begin();
    assert_eq!(begun, policy("changed"));
    assert_eq!(history.view(false).entries.last().unwrap().origin, Origin::File);
    // What was applied to another file is over, also where the file is as it was then.
    place.write("file");
    assert_eq!(place.begin().1, policy("file"));
}

#[test]
fn a_file_that_was_read_again_is_what_counts() {
    let place = Place::new("reread");
    place.write("file");
    let (mut history, _) = place.begin();
    history.keep_applied(&policy("applied"), By::default());
    history.keep_reread(&policy("file"));
    assert_eq!(place.begin().1, policy("file"));
}

#[test]
fn a_start_with_the_same_file_adds_nothing() {
    let place = Place::new("same");
    place.write("file");
    for _ in 0..3 {
        assert_eq!(place.begin().0.view(false).entries.len(), 1);
    }
}

/// Name of a damage, and the function that inflicts it.
type Harm = (&'static str, fn(&Path));

/// Every damage to the newest entry: the file's policy is in force, and no existing file is lost.
#[test]
fn a_damaged_entry_is_no_reason_not_to_start() {
    let damages: [Harm; 5] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("garbled", |path| fs::write(path, b"\xff\xfe\0garbage").unwrap()),
        ("short", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 5]).unwrap();
        }),
        ("changed", |path| {
            let text = fs::read_to_string(path).unwrap().replace("zone = \"applied\"", "zone = \"another\"");
            fs::write(path, text).unwrap();
        }),
        ("directory", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let place = Place::new(name);
        place.write("file");
        let (mut history, _) = place.begin();
        history.keep_applied(&policy("applied"), By::default());
        damage(&place.directory().join("000002.toml"));
        let (mut history, begun) = place.begin();
        assert_eq!(begun, policy("file"), "{name}");
        history.keep_applied(&policy("again"), By::default());
        assert_eq!(place.begin().1, policy("again"), "{name}");
    }
}

#[test]
fn so_many_are_kept_and_no_more() {
    let place = Place::new("many");
    place.write("file");
    let (mut history, _) = place.begin();
    for number in 0..60 {
        history.keep_applied(&policy(&format!("z{number}")), By::default());
    }
    let (history, begun) = place.begin();
    assert_eq!(begun, policy("z59"));
    let entries = history.view(false).entries;
    assert_eq!((entries.len(), entries[0].number, entries[MOST - 1].number), (MOST, 12, 61));
    assert_eq!(fs::read_dir(place.directory()).unwrap().count(), MOST);
}

#[test]
fn a_directory_that_cannot_be_made_is_no_reason_not_to_start() {
    let place = Place::new("none");
    place.write("file");
    fs::write(place.directory(), "a file in its place").unwrap();
    let (mut history, begun) = place.begin();
    history.keep_applied(&policy("applied"), By::default());
    assert_eq!((begun, history.view(false).entries.len()), (policy("file"), 0));
}

/// Another entry does not pass for the policy in force.
#[test]
fn a_policy_that_cannot_be_written_is_named_and_has_no_entry() {
    let place = Place::new("unwritten");
    place.write("file");
    let (mut history, _) = place.begin();
    fs::rename(place.directory(), place.0.join("elsewhere")).unwrap();
    history.keep_applied(&policy("applied"), By::default());
    let fault = history.fault().expect("a fault");
    assert!(fault.contains("000002.toml") && fault.contains("will not survive a restart"), "{fault}");
    assert_eq!((history.view(false).in_force, history.view(false).entries.len()), (None, 1));
    fs::rename(place.0.join("elsewhere"), place.directory()).unwrap();
    history.keep_applied(&policy("again"), By::default());
    assert_eq!((history.view(false).in_force, history.fault()), (Some(2), None));
}

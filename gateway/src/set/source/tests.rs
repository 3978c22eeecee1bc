//! Sources of lists: files and an HTTP server of the test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};

use wire::Nanos;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("wirerate-set-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn plan(&self, source: SetSource) -> Plan {
        let set = DynamicSet { source, size: 100, ..DynamicSet::new("banned") };
        Plan::of(&set, &self.directories()).unwrap()
    }

    fn directories(&self) -> Directories {
        Directories { policy: self.0.clone(), kept: Some(self.0.join("sets")) }
    }

    fn file(&self) -> PathBuf {
        self.0.join("list.txt")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn begun(plan: Plan) -> (Receiver<Outcome>, Sender<()>) {
    let (until, ended) = channel();
    let (told, outcomes) = channel();
    follow(plan, ended, move |outcome| {
        let _ = told.send(outcome);
    })
    .unwrap();
    (outcomes, until)
}

fn prefixes(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Loaded(loaded) => loaded.list.prefixes.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn trouble(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Trouble(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_set_of_rules_has_no_source() {
    let directories = Directories { policy: PathBuf::new(), kept: None };
    assert_eq!(Plan::of(&DynamicSet::new("banned"), &directories), None);
}

#[test]
fn a_path_begins_at_the_policy_and_a_name_leads_nowhere_else() {
    let place = Place::new("relative");
    fs::write(place.file(), "192.0.2.1\n").unwrap();
    let source = SetSource::File("list.txt".to_owned());
    let set = DynamicSet { source, ..DynamicSet::new("a/../../elsewhere") };
    let plan = Plan::of(&set, &place.directories()).unwrap();
    assert_eq!(prefixes(&plan.begin()[0]), ["192.0.2.1/32"]);
    assert_eq!(plan.kept.unwrap().parent().unwrap(), place.0.join("sets"));
}

#[test]
fn a_file_is_read_at_the_beginning_and_when_it_changes() {
    let place = Place::new("file");
    let file = place.file();
    let plan = place.plan(SetSource::File(file.display().to_string()));
    let first = plan.begin();
    assert!(trouble(&first[0]).contains("list.txt cannot be read"), "{first:?}");
    fs::write(&file, "192.0.2.1\n").unwrap();
    assert_eq!(prefixes(&plan.begin()[0]), ["192.0.2.1/32"]);
    let (outcomes, until) = begun(plan.clone());
    // Once more, as it may have changed since the beginning.
    assert_eq!(prefixes(&outcomes.recv_timeout(PATIENCE).unwrap()), ["192.0.2.1/32"]);
    fs::write(&file, "192.0.2.2\n192.0.2.3\n").unwrap();
    assert_eq!(prefixes(&outcomes.recv_timeout(PATIENCE).unwrap()), ["192.0.2.2/32", "192.0.2.3/32"]);
    // The last good list is kept, and is what a start without the file begins with.
    fs::remove_file(&file).unwrap();
    assert!(trouble(&outcomes.recv_timeout(PATIENCE).unwrap()).contains("cannot be read"));
    let begun = plan.begin();
    assert_eq!(prefixes(&begun[0]), ["192.0.2.2/32", "192.0.2.3/32"]);
    assert!(trouble(&begun[1]).contains("cannot be read"));
    drop(until);
    assert!(outcomes.recv_timeout(PATIENCE).is_err(), "the thread ends with the sender");
}

#[test]
fn what_is_no_file_and_what_is_no_list_are_refused() {
    let place = Place::new("refused");
    let directory = place.plan(SetSource::File(place.0.display().to_string()));
    assert!(trouble(&directory.begin()[0]).contains("no file"));
    fs::write(place.file(), "<html>\n").unwrap();
    let page = place.plan(SetSource::File(place.file().display().to_string()));
    assert!(trouble(&page.begin()[0]).contains("no list"));
}

/// Answers each request with the next of these responses, and returns the requests' headers.
fn serve(responses: Vec<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/list", listener.local_addr().unwrap());
    let (told, requests) = channel();
    thread::spawn(move || {
        for response in responses {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let _ = told.send(head);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (url, requests)
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

#[test]
fn a_url_is_asked_for_changes_and_its_list_is_kept() {
    let place = Place::new("url");
    let (url, requests) = serve(vec![
        response("200 OK", "etag: \"one\"\r\n", "192.0.2.1\n"),
        response("304 Not Modified", "", ""),
        response("200 OK", "", ""),
        response("503 Service Unavailable", "", "192.0.2.9\n"),
        response("200 OK", "", "<html>\n"),
        response("200 OK", "", "192.0.2.2\n"),
    ]);
    let refresh = Nanos::from_millis(50);
    let plan = place.plan(SetSource::Url { url, refresh });
    assert!(plan.begin().is_empty());
    let (outcomes, _until) = begun(plan.clone());
    let next = || outcomes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(prefixes(&next()), ["192.0.2.1/32"]);
    assert!(!requests.recv().unwrap().to_lowercase().contains("if-none-match"));
    assert!(matches!(next(), Outcome::Unchanged(_)));
    assert!(requests.recv().unwrap().to_lowercase().contains("if-none-match: \"one\""));
    assert!(trouble(&next()).contains("empty"));
    assert!(trouble(&next()).contains("503"));
    assert!(trouble(&next()).contains("no list"));
    assert_eq!(prefixes(&plan.begin()[0]), ["192.0.2.1/32"]);
    assert_eq!(prefixes(&next()), ["192.0.2.2/32"]);
    // Nobody listens any more.
    assert!(trouble(&next()).contains("cannot be downloaded"));
    assert_eq!(prefixes(&plan.begin()[0]), ["192.0.2.2/32"]);
}

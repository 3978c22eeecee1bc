//! Network namespaces of a test's own, with real Linux hosts in them. Nothing outside of them is touched, and they go
//! with the threads that live in them.
#![allow(unsafe_code, dead_code)]

use std::process::{Command, Output};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// Runs a test on a thread in a network namespace of its own: what it calls `here`. Says so and passes without
/// privileges.
pub(crate) fn run(test: impl FnOnce() + Send + 'static) {
    if let Err(reason) = enter() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    ip("link set lo up");
    test();
}

/// A thread in another network namespace.
pub(crate) struct Host {
    tid: i32,
    tasks: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new() -> Host {
        let (tasks, inbox) = channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            enter().unwrap();
            ip("link set lo up");
            // SAFETY: takes nothing and returns a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            inbox.into_iter().for_each(|task| task());
        });
        Host { tid: told.recv().unwrap(), tasks: Some(tasks), thread: Some(thread) }
    }

    /// Makes a pair of interfaces, `near` here and `far` at the host.
    pub(crate) fn connect(&self, near: &str, far: &str) {
        ip(&format!("link add {near} type veth peer name {far} netns {}", self.tid));
        ip(&format!("link set {near} up"));
        let up = format!("link set {far} up");
        self.run(move || ip(&up));
    }

    /// Runs something at the host and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let task: Box<dyn FnOnce() + Send> = Box::new(move || tell.send(task()).unwrap());
        self.tasks.as_ref().unwrap().send(task).unwrap();
        told.recv().expect("the task panicked")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        // A panic there has been told already, by `run`.
        let _ = self.thread.take().unwrap().join();
    }
}

/// `ip` with these arguments, which must succeed.
pub(crate) fn ip(arguments: &str) {
    command("ip", arguments);
}

/// Runs a command in this thread's namespace; it must succeed.
pub(crate) fn command(program: &str, arguments: &str) -> Output {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments}: {said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    output
}

fn enter() -> Result<(), String> {
    // SAFETY: takes a number; changes only this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(format!("no network namespace of our own: {}", std::io::Error::last_os_error()))
}

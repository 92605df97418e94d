//! Config changes under a running gateway.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use crate::home::{Home, Process};

// Case 47, pitfall 77.
#[test]
fn more_slots_start_queued_runs_and_an_invalid_config_changes_nothing() {
    let home = Home::new();
    home.configure("{agents: {defaults: {maxConcurrent: 1}}}");
    let gateway = home.gateway();
    let file = home.work().join("go");
    let busy = format!("run `until test -e {}; do sleep 0.05; done`", file.display());
    let turn = |session: &str, message: &str| {
        let args = ["agent", "-m", message, "--session-id", session, "--verbose", "on"];
        Process(gateway.command(&args).spawn().unwrap())
    };
    let mut first = turn("first", &busy);
    let mut line = String::new();
    BufReader::new(first.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let mut second = turn("second", "help");
    while gateway.run(&["status", "--json"]).json()["work"]["queued"] != 1 {}
    home.configure("{agents: {defaults: {maxConcurrent: ");
    home.configure("{agents: {defaults: {maxConcurrent: 2}}}");
    assert_eq!(second.0.wait().unwrap().code(), Some(0));
    assert_eq!(first.0.try_wait().unwrap(), None);
    fs::write(file, "").unwrap();
    assert_eq!(first.0.wait().unwrap().code(), Some(0));
}

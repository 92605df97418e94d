//! Who waits for whom: a session that is blocked holds nobody up, and slots go round.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use homard_testkit::{Played, Trace, laws, play};

/// A turn of the model.
const TURN: Duration = Duration::from_millis(100);

/// Plays lines, and checks what must hold whatever they are.
fn played(lines: &str) -> Played {
    let played = play(&Trace::read("generated", lines).unwrap()).unwrap();
    assert_eq!(laws::broken(&played), Vec::<String>::new());
    played
}

/// When each run began, by the name of the run.
fn beginnings(played: &Played) -> BTreeMap<String, Duration> {
    played.beginnings().map(|(run, at)| (run.to_string(), at)).collect()
}

#[test]
fn a_blocked_session_holds_nobody_up() {
    let mut lines = "set slots=200 timeout=20m idle=20m\nat 0ms chat \"block\" run=blocked key=blocked\n".to_owned();
    lines.push_str("model pause 10m ; text \"At last.\"\n");
    for session in 0..100 {
        writeln!(lines, "at 1s chat \"hi\" run=s{session} key=s{session}\nmodel pause 1m ; text \"Hello.\"").unwrap();
    }
    let began = beginnings(&played(&lines));
    let late: Vec<_> = began.iter().filter(|(run, at)| *run != "blocked" && **at != Duration::from_secs(1)).collect();
    assert_eq!((began.len(), late), (101, Vec::new()));
}

#[test]
fn no_session_waits_more_than_a_turn_longer_than_another() {
    const SESSIONS: usize = 10;
    const MESSAGES: usize = 20;
    let mut lines = "set slots=4 queue=\"followup debounce:0 cap:100\"\n".to_owned();
    // Whoever comes first sends everything at once: the others must not wait for all of it.
    for session in 0..SESSIONS {
        for message in 0..MESSAGES {
            writeln!(lines, "at 0ms chat \"hi\" run=s{session}-{message} key=s{session}").unwrap();
        }
    }
    (0..SESSIONS * MESSAGES)
        .for_each(|_| writeln!(lines, "model pause {}ms ; text \"Yes.\"", TURN.as_millis()).unwrap());
    let began = beginnings(&played(&lines));
    assert_eq!(began.len(), SESSIONS * MESSAGES);
    // In no round does one session get a second turn while another still waits for its first.
    let turns =
        |session: usize, at: Duration| (0..MESSAGES).filter(|n| began[&format!("s{session}-{n}")] <= at).count();
    for at in began.values() {
        let counts: Vec<_> = (0..SESSIONS).map(|session| turns(session, *at)).collect();
        let (most, fewest) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        assert!(most - fewest <= 1, "at {at:?} sessions had {counts:?} turns");
    }
}

// Case 208.
#[test]
fn a_hundred_sessions_share_four_slots() {
    let mut lines = "set slots=4 queue=\"collect debounce:1000\"\n".to_owned();
    for message in 0..5 {
        for session in 0..100 {
            let at = message * 200 + session;
            writeln!(lines, "at {at}ms chat \"m{session}-{message}\" run=s{session}-{message} key=s{session}").unwrap();
        }
    }
    // The laws say that each message is answered or collected exactly once. The first of each session has its own turn,
    // the others wait and are one more; only eight that came to a session at rest have a turn of their own as well.
    const TURNS: usize = 208;
    (0..TURNS).for_each(|_| lines.push_str("model pause 100ms ; text \"Yes.\"\n"));
    let played = played(&lines);
    assert_eq!((beginnings(&played).len(), played.busiest()), (TURNS, 4));
}

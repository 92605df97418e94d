//! Fairness: a blocked session delays no other, slots are shared evenly, and a flood of messages starves no session.
//!
//! R29 and R30: `GRID=all` sends ten thousand messages.
#![allow(clippy::unwrap_used, reason = "tests may")]
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how much is a flood")]

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use homard_agent::{RunEvent, StoredEvent, TapeEvent, tape::TapeState};
use homard_proto::RunId;
use homard_store::{AbortReason, Outcome};
use homard_testkit::{Trace, TraceResult, invariants, play, runner::EPOCH_MS};

/// Duration of a model turn.
const TURN: Duration = Duration::from_millis(100);

/// Executes a trace and checks the invariants.
fn play_checked(lines: &str) -> TraceResult {
    let result = play(&Trace::read("generated", lines).unwrap()).unwrap();
    assert_eq!(invariants::violations(&result), Vec::<String>::new());
    result
}

/// Returns when each run started, by its name.
fn run_starts(result: &TraceResult) -> BTreeMap<String, Duration> {
    result.run_starts().map(|(run, at)| (run.to_string(), at)).collect()
}

#[test]
fn a_blocked_session_delays_no_other() {
    let mut lines = "set slots=200 timeout=20m idle=20m\nat 0ms chat \"block\" run=blocked key=blocked\n".to_owned();
    lines.push_str("model pause 10m ; text \"At last.\"\n");
    for session in 0..100 {
        writeln!(lines, "at 1s chat \"hi\" run=s{session} key=s{session}\nmodel pause 1m ; text \"Hello.\"").unwrap();
    }
    let starts = run_starts(&play_checked(&lines));
    let late: Vec<_> = starts.iter().filter(|(run, at)| *run != "blocked" && **at != Duration::from_secs(1)).collect();
    assert_eq!((starts.len(), late), (101, Vec::new()));
}

#[test]
fn no_session_waits_more_than_a_turn_longer_than_another() {
    const SESSIONS: usize = 10;
    const MESSAGES: usize = 20;
    let mut lines = "set slots=4 queue=\"followup debounce:0 cap:100\"\n".to_owned();
    // The first session sends everything at once: the others must not wait for all of it.
    for session in 0..SESSIONS {
        for message in 0..MESSAGES {
            writeln!(lines, "at 0ms chat \"hi\" run=s{session}-{message} key=s{session}").unwrap();
        }
    }
    (0..SESSIONS * MESSAGES)
        .for_each(|_| writeln!(lines, "model pause {}ms ; text \"Yes.\"", TURN.as_millis()).unwrap());
    let starts = run_starts(&play_checked(&lines));
    assert_eq!(starts.len(), SESSIONS * MESSAGES);
    // At no time does a session get a second turn while another still waits for its first.
    let turns =
        |session: usize, at: Duration| (0..MESSAGES).filter(|n| starts[&format!("s{session}-{n}")] <= at).count();
    for at in starts.values() {
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
    // The invariants say that each message is answered or collected exactly once. The first of each session has its own
    // turn, the others are merged into one more; only eight that came to an idle session have a turn of their own as
    // well.
    const TURNS: usize = 208;
    (0..TURNS).for_each(|_| lines.push_str("model pause 100ms ; text \"Yes.\"\n"));
    let result = play_checked(&lines);
    assert_eq!((run_starts(&result).len(), result.max_concurrent_runs()), (TURNS, 4));
}

/// Number of messages in a flood.
fn flood_size(default: usize) -> usize {
    if std::env::var("GRID").is_ok_and(|value| value == "all") { 10_000 } else { default }
}

/// Executes a flood. Checking all invariants is quadratic and takes too long here, so this only checks that every run
/// has ended.
fn play_flood(lines: &str) -> TraceResult {
    let result = play(&Trace::read("generated", lines).unwrap()).unwrap();
    let unfinished = result.runs().filter(|(tape, _)| !matches!(tape.state(), TapeState::Ended(_)));
    assert_eq!(unfinished.map(|(tape, _)| tape.run()).collect::<Vec<_>>(), Vec::<&RunId>::new());
    result
}

/// Maximum number of queued messages per session, regardless of its settings.
const LIMIT: usize = 1_000;

/// Maximum number of queued messages with `cap:100`.
const CAP: usize = 100;

/// Returns this many identical model turns.
fn turns(count: usize) -> String {
    format!("model pause {}ms ; text \"Yes.\"\n", TURN.as_millis()).repeat(count)
}

/// Returns a flood of messages to one session, sent before all others: as many as fit into the queue are answered.
fn flood_lines(messages: usize) -> String {
    (0..messages).fold(String::new(), |mut lines, message| {
        writeln!(lines, "at 0ms chat \"more\" run=flood-{message} key=flood").unwrap();
        lines
    })
}

#[test]
fn r29_a_flood_in_one_session_is_answered_up_to_the_limit_and_the_rest_refused_at_once() {
    let sent = flood_size(LIMIT + 200);
    let mut lines = "set queue=\"followup debounce:0 cap:100000 drop:new\"\n".to_owned();
    lines.push_str(&flood_lines(sent));
    // The active run, and the queued ones.
    let answered = 1 + LIMIT;
    lines.push_str(&turns(answered));
    let result = play_flood(&lines);
    let starts: Vec<_> = result.run_starts().map(|(run, _)| run.to_string()).collect();
    assert_eq!(starts, (0..answered).map(|message| format!("flood-{message}")).collect::<Vec<_>>());
    let refused = result.runs().filter(|(_, events)| {
        matches!(events, [TapeEvent { at, kind: RunEvent::Stored(StoredEvent::Ended(end)), .. }]
            if *at == EPOCH_MS && end.outcome == Outcome::Aborted(AbortReason::Dropped))
    });
    assert_eq!(refused.count(), sent - answered);
}

#[test]
fn r29_a_flood_of_sessions_is_answered_completely_and_in_order() {
    let sessions = flood_size(400);
    let mut lines = "set slots=4 timeout=100h\n".to_owned();
    for session in 0..sessions {
        writeln!(lines, "at 0ms chat \"hi\" run=s{session} key=s{session}").unwrap();
    }
    lines.push_str(&turns(sessions));
    let result = play_flood(&lines);
    let starts: Vec<_> = result.run_starts().map(|(run, _)| run.to_string()).collect();
    assert_eq!(starts, (0..sessions).map(|session| format!("s{session}")).collect::<Vec<_>>());
    assert_eq!(result.max_concurrent_runs(), 4);
}

/// Returns Jain's fairness index: 1 if all shares are equal, and less the more uneven they are.
fn jain(shares: &[usize]) -> f64 {
    let (sum, squares): (usize, usize) = (shares.iter().sum(), shares.iter().map(|share| share * share).sum());
    (sum * sum) as f64 / (shares.len() * squares) as f64
}

#[test]
fn r30_other_sessions_get_equal_shares_during_a_flood() {
    const NORMALS: usize = 9;
    const MESSAGES: usize = 20;
    let mut lines = "set slots=4 queue=\"followup debounce:0 cap:100 drop:new\"\n".to_owned();
    lines.push_str(&flood_lines(flood_size(4 * CAP)));
    for normal in 0..NORMALS {
        for message in 0..MESSAGES {
            writeln!(lines, "at 0ms chat \"hi\" run=n{normal}-{message} key=n{normal}").unwrap();
        }
    }
    lines.push_str(&turns(1 + CAP + NORMALS * MESSAGES));
    let result = play_flood(&lines);
    // Counts until the first of them has all its turns.
    let mut shares = [0; NORMALS];
    let mut flood_turns = 0;
    for (run, _) in result.run_starts() {
        match run.as_str().strip_prefix('n').and_then(|name| name.split_once('-')) {
            Some((normal, _)) => shares[normal.parse::<usize>().unwrap()] += 1,
            None => flood_turns += 1,
        }
        if shares.contains(&MESSAGES) {
            break;
        }
    }
    assert!(jain(&shares) >= 0.95, "{shares:?}");
    assert!(flood_turns <= MESSAGES + 1, "the flood had {flood_turns} turns, and others {shares:?}");
}

#[test]
fn r30_a_flood_delays_other_sessions_by_at_most_a_turn() {
    const NORMALS: usize = 9;
    const ROUNDS: usize = 10;
    let add_normal_sessions = |lines: &mut String| {
        for (round, normal) in (0..ROUNDS).flat_map(|round| (0..NORMALS).map(move |normal| (round, normal))) {
            // Between the turns of the flood, so that no message arrives exactly when a slot becomes free.
            let at = 1_050 + round * 2_000;
            writeln!(lines, "at {at}ms chat \"hi\" run=n{normal}-{round} key=n{normal}").unwrap();
        }
        lines.push_str(&turns(NORMALS * ROUNDS));
    };
    let rules = "set slots=1 queue=\"followup debounce:0 cap:100 drop:new\"\n";
    let (mut alone, mut with_flood) =
        (rules.to_owned(), rules.to_owned() + &flood_lines(flood_size(4 * CAP)) + &turns(1 + CAP));
    add_normal_sessions(&mut alone);
    add_normal_sessions(&mut with_flood);
    let (alone, with_flood) = (run_starts(&play_flood(&alone)), run_starts(&play_flood(&with_flood)));
    assert_eq!((alone.len(), with_flood.len()), (NORMALS * ROUNDS, NORMALS * ROUNDS + 1 + CAP));
    let longest = alone.iter().map(|(run, at)| with_flood[run].saturating_sub(*at)).max();
    assert!(longest <= Some(TURN), "somebody waited {longest:?} longer");
}

//! Tests of slots under changing clocks: none is lost, and none runs twice.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// 2026-11-15T00:00:00Z.
const START_MS: u64 = 1_794_700_800_000;

fn job(schedule: &Value) -> CronJob {
    let job = json!({
        "id": "j", "name": "j", "createdAtMs": START_MS, "schedule": schedule, "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "x"},
    });
    serde_json::from_value(job).unwrap()
}

fn every(ms: u64) -> CronJob {
    job(&json!({"kind": "every", "everyMs": ms}))
}

fn pattern(expr: &str) -> CronJob {
    job(&json!({"kind": "cron", "expr": expr}))
}

fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}

/// Checks a job at these times. Returns what ran when, and how many slots were missed.
fn check_at(job: &mut CronJob, zone: &TimeZone, times: impl IntoIterator<Item = u64>) -> (Vec<(u64, u64)>, u64) {
    let (mut ran, mut missed) = (Vec::new(), 0);
    for now in times {
        let due = due(job, zone, now).unwrap();
        ran.extend(due.run.map(|slot| (slot, now)));
        missed += due.missed.map_or(0, |missed| missed.count);
        job.state.settled_at_ms = due.settled;
        job.state.next_run_at_ms = due.next;
    }
    (ran, missed)
}

/// Returns all slots up to a time, found one by one.
fn slots(job: &CronJob, zone: &TimeZone, until: u64) -> Vec<u64> {
    let from = next(job, zone, START_MS).unwrap();
    std::iter::successors(from, |&slot| next(job, zone, slot).unwrap()).take_while(|&slot| slot <= until).collect()
}

#[test]
fn slots_are_counted_from_the_anchor() {
    assert_eq!(slots(&every(HOUR), &TimeZone::UTC, START_MS + 3 * HOUR), [1, 2, 3].map(|n| START_MS + n * HOUR));
    let anchored = job(&json!({"kind": "every", "everyMs": HOUR, "anchorMs": START_MS + 90_000}));
    assert_eq!(slots(&anchored, &TimeZone::UTC, START_MS + 2 * HOUR), [90_000, 90_000 + HOUR].map(|ms| START_MS + ms));
    let hasty = every(1);
    assert_eq!(next(&hasty, &TimeZone::UTC, START_MS).unwrap(), Some(START_MS + MIN_INTERVAL_MS));
}

#[test]
fn a_slot_that_did_not_run_in_time_is_missed() {
    let mut down = every(HOUR);
    let due_now = due(&down, &TimeZone::UTC, START_MS + 3 * HOUR + 61_000).unwrap();
    let missed = MissedSlots { first: START_MS + HOUR, last: START_MS + 3 * HOUR, count: 3, is_at_least: false };
    let settled = Some(START_MS + 3 * HOUR);
    assert_eq!(due_now, DueSlots { missed: Some(missed), run: None, next: Some(START_MS + 4 * HOUR), settled });
    // Back within the minute, the newest still runs.
    let due_now = due(&down, &TimeZone::UTC, START_MS + 3 * HOUR + 60_000).unwrap();
    let missed = MissedSlots { last: START_MS + 2 * HOUR, count: 2, ..missed };
    assert_eq!(due_now, DueSlots { missed: Some(missed), run: settled, next: Some(START_MS + 4 * HOUR), settled });
    down.state.settled_at_ms = settled;
    let nothing = DueSlots { next: Some(START_MS + 4 * HOUR), settled, ..DueSlots::default() };
    assert_eq!(due(&down, &TimeZone::UTC, START_MS + 3 * HOUR + 60_000), Ok(nothing));
}

#[test]
fn a_one_time_job_runs_up_to_an_hour_late() {
    let once = |text: &str| job(&json!({"kind": "at", "at": text}));
    let slot = at("2026-11-15T08:30:00Z");
    let run = |late: u64| due(&once("2026-11-15T08:30:00Z"), &TimeZone::UTC, slot + late).unwrap();
    assert_eq!(run(0), DueSlots { run: Some(slot), settled: Some(slot), ..DueSlots::default() });
    assert_eq!(run(HOUR), run(0));
    let missed = MissedSlots { first: slot, last: slot, count: 1, is_at_least: false };
    assert_eq!(run(HOUR + 1), DueSlots { missed: Some(missed), settled: Some(slot), ..DueSlots::default() });
    let mut done = once("2026-11-15T08:30:00Z");
    done.state.settled_at_ms = Some(slot);
    assert_eq!(due(&done, &TimeZone::UTC, slot + 5).unwrap().run, None);
    for same in ["2026-11-15T09:30:00+01:00", "2026-11-15T08:30", "2026-11-15 08:30:00", &slot.to_string()] {
        assert_eq!(next(&once(same), &TimeZone::UTC, 0), Ok(Some(slot)), "{same}");
    }
    assert_eq!(next(&once("2026-11-15"), &TimeZone::UTC, 0), Ok(Some(START_MS)));
    assert_eq!(next(&job(&json!({"kind": "at", "atMs": slot})), &TimeZone::UTC, 0), Ok(Some(slot)));
    assert_eq!(next(&once("tomorrow"), &TimeZone::UTC, 0), Err(Error::Time("tomorrow".to_owned())));
}

#[test]
fn the_state_of_an_openclaw_file_is_continued() {
    let mut planned = every(HOUR);
    planned.state.next_run_at_ms = Some(START_MS + 5 * HOUR);
    assert_eq!(due(&planned, &TimeZone::UTC, START_MS + 5 * HOUR + 5).unwrap().run, Some(START_MS + 5 * HOUR));
    assert_eq!(due(&planned, &TimeZone::UTC, START_MS + 7 * HOUR).unwrap().missed.map(|missed| missed.count), Some(2));
    let mut ran = job(&json!({"kind": "at", "atMs": START_MS + HOUR}));
    ran.state.last_run_at_ms = Some(START_MS + HOUR + 3);
    assert_eq!(due(&ran, &TimeZone::UTC, START_MS + HOUR + 10), Ok(DueSlots::default()));
}

// R83.
#[test]
fn clock_jumps_miss_slots_but_never_repeat_them() {
    let mut hourly = every(HOUR);
    let now = START_MS + 10 * HOUR + 5;
    let (ran, missed) = check_at(&mut hourly, &TimeZone::UTC, [now, now - HOUR, now + 30, now + HOUR]);
    assert_eq!((ran, missed), (vec![(START_MS + 10 * HOUR, now), (START_MS + 11 * HOUR, now + HOUR)], 9));
    // A year ahead and back: the job does not wait for a year.
    let (ran, missed) = check_at(&mut hourly, &TimeZone::UTC, [now + YEAR, now + HOUR + 10, now + 2 * HOUR]);
    assert_eq!(ran, [(START_MS + 10 * HOUR + YEAR, now + YEAR), (START_MS + 12 * HOUR, now + 2 * HOUR)]);
    assert_eq!(missed, 365 * 24 - 2);
}

#[test]
fn daylight_saving_changes_run_a_daily_job_once() {
    let early = pattern("30 2 * * *");
    let from = |start: &str, days: usize| {
        let first = next(&early, &berlin(), at(start)).unwrap();
        let all = std::iter::successors(first, |&slot| next(&early, &berlin(), slot).unwrap());
        all.take(days).map(homard_runtime::ambient::iso).collect::<Vec<_>>()
    };
    assert_eq!(
        from("2026-03-27T12:00:00Z", 3),
        ["2026-03-28T01:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"]
    );
    assert_eq!(
        from("2026-10-23T12:00:00Z", 3),
        ["2026-10-24T00:30:00.000Z", "2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]
    );
}

#[test]
fn the_time_zone_of_a_job_overrides_the_machine() {
    let tokyo = job(&json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"}));
    assert_eq!(next(&tokyo, &berlin(), START_MS), Ok(Some(START_MS + DAY)));
    let nowhere = job(&json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Mars/Base"}));
    assert_eq!(next(&nowhere, &berlin(), START_MS), Err(Error::Zone("Mars/Base".to_owned())));
    let error = next(&pattern("every day"), &berlin(), START_MS).unwrap_err().to_string();
    assert!(error.starts_with("schedule.expr \"every day\" is not a cron expression ("), "{error}");
    assert_eq!(next(&pattern("0 0 30 2 *"), &berlin(), START_MS), Ok(None));
}

#[test]
fn counting_of_missed_slots_is_limited() {
    let due = due(&pattern("* * * * *"), &TimeZone::UTC, START_MS + YEAR + 90_000).unwrap();
    let last = START_MS + YEAR + 60_000;
    let missed =
        MissedSlots { first: START_MS + 60_000, last: last - 60_000, count: MAX_COUNTED - 1, is_at_least: true };
    assert_eq!(due, DueSlots { missed: Some(missed), run: Some(last), next: Some(last + 60_000), settled: Some(last) });
}

fn any_job() -> impl Strategy<Value = CronJob> {
    prop_oneof![
        (MIN_INTERVAL_MS..3 * HOUR).prop_map(every),
        prop::sample::select(vec![
            "*/7 * * * *",
            "30 2 * * *",
            "0 */3 * * *",
            "15,45 1-4 * * *",
            "0 0 1 * *",
            "0 12 * * 1-5",
        ])
        .prop_map(pattern),
    ]
}

/// Steps of the clock: seconds, hours, and sometimes an hour back.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let hour = HOUR as i64;
    let step = prop_oneof![6 => 1..90_000i64, 3 => 1..10 * hour, 1 => Just(-hour), 1 => Just(hour)];
    prop::collection::vec(step, 1..60)
}

fn times(from: u64, steps: &[i64]) -> Vec<u64> {
    let walk = steps.iter().scan(from, |now, step| {
        *now = now.saturating_add_signed(*step).max(from);
        Some(*now)
    });
    walk.collect()
}

proptest! {
    #[test]
    fn every_slot_runs_once_or_is_missed(
        mut job in any_job(), steps in steps(), start in 0..YEAR, is_berlin in any::<bool>()
    ) {
        let zone = if is_berlin { berlin() } else { TimeZone::UTC };
        // The job is as old as the walk, which may begin anywhere in a year, also at changes of daylight saving time.
        job.state.settled_at_ms = Some(START_MS + start);
        let walk = times(START_MS + start, &steps);
        let (ran, missed) = check_at(&mut job, &zone, walk.iter().copied());
        let newest = walk.iter().copied().max().unwrap();
        let first = next(&job, &zone, START_MS + start).unwrap();
        let all = std::iter::successors(first, |&slot| next(&job, &zone, slot).unwrap());
        let all: Vec<_> = all.take_while(|&slot| slot <= newest).collect();
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(ran.windows(2).all(|pair| pair[0].0 < pair[1].0));
        prop_assert!(ran.iter().all(|(slot, now)| all.contains(slot) && now - slot <= MAX_LATE_MS));
        prop_assert_eq!(ran.len() as u64 + missed, all.len() as u64);
    }

}

proptest! {
    // Counting a year of minutes takes long.
    #![proptest_config(ProptestConfig::with_cases(8))]

    // R83.
    #[test]
    fn a_job_survives_a_clock_jump_of_a_year(mut job in any_job(), start in 0..YEAR, back in DAY..YEAR) {
        let now = START_MS + start;
        let (ran, _) = check_at(&mut job, &TimeZone::UTC, [now, now + YEAR, now + YEAR - back]);
        let next = job.state.next_run_at_ms.unwrap();
        let last = now + YEAR - back;
        let from = last.max(job.state.settled_at_ms.unwrap());
        prop_assert_eq!(Ok(Some(next)), super::next(&job, &TimeZone::UTC, from));
        // A month is the longest interval of these jobs; the settled time is at most a day ahead of the clock.
        prop_assert!(next <= last + 32 * DAY + DAY);
        prop_assert!(ran.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}

//! Tests of the page and the diagrams.

use anyhow::anyhow;

use super::{page::number, plot::LineChart, *};

#[test]
fn values_have_three_significant_digits() {
    let formatted = [0.0, 0.0421, 1.234, 45.67, 123.4, 12_345.6, 1_234_567.0, -2.5, -123_456.0].map(number);
    assert_eq!(formatted, ["0", "0.042", "1.23", "45.7", "123", "12,346", "1,234,567", "-2.50", "-123,456"]);
}

#[test]
fn an_empty_cell_has_a_footnote() {
    let mut results = PeerResults { peers: vec!["floor".to_owned(), "Homard".to_owned()], ..PeerResults::default() };
    results.enter(PeerRow::History, "floor", Err(anyhow!("the floor has no history")));
    results.enter(PeerRow::History, "Homard", Ok(vec![("history", 25.0)]));
    results.enter(PeerRow::Start, "floor", Ok(vec![("start", 7.0), ("idle-rss", 2.5)]));
    results.enter(PeerRow::Start, "Homard", Ok(vec![("start", 20.0)]));
    assert_eq!(
        page::table(&results),
        "| | | floor | ZeroClaw 0.8.4 (quoted) | Homard | target | |\n\
         |---|---|---|---|---|---|---|\n\
         | cold start to an accepted handshake | ms | 7.00 | 34–40 | **20.0** | ≤ 40 | met |\n\
         | memory, idle | MB | 2.50 | 37 | – [1] | ≤ 25 |  |\n\
         | history of 5,000 × 1 KB, additional time per turn | ms | – [2] | – | **25.0** | ≤ 20 | **missed** |\n\
         \n[1] not measured\n\
         \n[2] the floor has no history\n"
    );
    assert_eq!(
        results.to_json()["history"]["figures"],
        json!({"Homard": 25.0, "floor": {"not": "the floor has no history"}})
    );
}

#[test]
fn bars_grow_with_their_values_and_names_are_escaped() {
    let svg = plot::bars("a < b", "ms", &[("Homard".to_owned(), 1.0), ("A & B".to_owned(), 1000.0)]);
    let widths: Vec<f64> = svg
        .lines()
        .filter_map(|line| line.strip_prefix("<rect x")?.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
        .collect();
    assert!(matches!(widths[..], [short, long] if short > 1.0 && long > 4.0 * short), "{widths:?}");
    assert!(svg.contains("a &lt; b") && svg.contains("A &amp; B") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn lines_stay_within_the_chart() {
    let lines = vec![("Homard".to_owned(), vec![(1.0, 3.0), (1000.0, 0.0)])];
    let svg = LineChart { title: "x", axes: ["a", "b"], is_logarithmic: true, lines }.to_svg();
    assert!(svg.contains(r#"<path d="M70.0 "#) && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

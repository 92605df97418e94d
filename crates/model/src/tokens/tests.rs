//! Compares estimates with the counts of a real tokenizer.

use std::slice;

use homard_proto::message::{Assistant, ImageBlock, ThinkingBlock, ToolCall, ToolResult, User};
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

/// Texts, and their number of tokens with the tokenizer `cl100k_base`.
const REFERENCES: [(&str, u64, &str); 28] = [
    (
        "English",
        86,
        "The harbour was quiet that morning. A few boats had come in before dawn, and the men who worked on them were sitting along the wall with their coffee, saying little. Nobody expected the letter, and when it arrived nobody wanted to be the first to open it. In the end it was the youngest of them who tore the envelope, read the first line aloud, and then stopped, because there was nothing else to say.",
    ),
    (
        "Rust",
        158,
        "/// Reads a file, at most `limit` bytes of it.\npub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {\n    let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;\n    let mut bytes = Vec::new();\n    file.take(limit + 1).read_to_end(&mut bytes)?;\n    if bytes.len() as u64 > limit {\n        return Err(Error::TooLarge { path: path.to_owned(), limit });\n    }\n    for (index, byte) in bytes.iter().enumerate() {\n        if *byte == 0 {\n            return Err(Error::Binary { at: index });\n        }\n    }\n    Ok(bytes)\n}\n",
    ),
    (
        "minified JSON",
        88,
        r#"{"id":"evt_81f2","type":"message","session":{"key":"agent:main:main","updatedAt":1731667200123},"tokens":{"input":1820,"output":411,"cacheRead":0},"content":[{"type":"text","text":"done"},{"type":"toolCall","name":"read","arguments":{"path":"src/main.rs","offset":120,"limit":40}}],"isError":false}"#,
    ),
    (
        "Chinese",
        143,
        "清晨的港口很安静。几条渔船在天亮前就回来了，船上的人坐在墙边喝着咖啡，很少说话。没有人料到会有那封信，信送到的时候，谁也不愿意第一个打开它。最后还是他们当中最年轻的人撕开了信封，大声念出第一行，然后停了下来，因为再也没有什么可说的了。",
    ),
    (
        "Japanese",
        161,
        "その朝、港は静かだった。夜明け前に数隻の船が戻り、漁師たちは壁ぎわに座ってコーヒーを飲みながら、ほとんど口をきかなかった。誰も手紙が来るとは思っていなかったし、届いたときには、最初に開けようとする者はいなかった。結局、いちばん若い男が封を切り、最初の一行を声に出して読み、それから黙り込んだ。",
    ),
    (
        "Russian",
        170,
        "В то утро в гавани было тихо. Несколько лодок вернулись ещё до рассвета, и люди, которые на них работали, сидели вдоль стены с кофе и почти не разговаривали. Никто не ждал письма, а когда оно пришло, никто не захотел открыть его первым. В конце концов самый молодой из них разорвал конверт, прочитал вслух первую строку и замолчал, потому что говорить было больше не о чем.",
    ),
    (
        "base64",
        275,
        "twoU7h4V16qUvYEOwG9Mt3o0bo8zrva/6uPXxEQtepPsMWgv3lYZF5Uv94p6it7/0P68Ny3SaHGRbEbGMDgbRYROzAgWTi6rJ2NKmt7hr6ZZnliVcOcZeE4IDOdH/A5FhEtpxNVMwmS8La22u3D1O8Ejvq/A9Y2B7YzUoHwkpad5hbDIuFjnf1fG1AOzFa3gTSSF1uwtCWlCVurdINtvJynyOU65LQ3tkke41xiOvdrj4Txx68+TkwJhmylgRIawBSAiDg8Su4R7V61Ls9/pCDaKEFenAouSGG5zdp/jzGKM8+u9rN393W8TZz+UX1I8yYE98vzfKkIKIw0oO99KeiQKQjdPqB0kUIY4KCpBbEay/30dxSmHHnFR5e7/13sT",
    ),
    (
        "numbers",
        74,
        "3141592653 1729 65536 0.5772156649 299792458 6.02214076 1618033988 2718281828 1.4142135623 8128 496 28 6 33550336 137.035999 1024 2048 4096 8192",
    ),
    (
        "Markdown",
        62,
        "# Getting started\n\n1. Install the toolchain.\n2. Run `cargo build --release`.\n3. Copy `config.example.json` to `~/.app/config.json`.\n\n- **Note**: the first build takes a few minutes.\n- See [the guide](docs/guide.md) for more.\n",
    ),
    (
        "Python",
        56,
        "def main(argv):\n    parser = argparse.ArgumentParser(description=__doc__)\n    parser.add_argument('--count', type=int, default=10)\n    args = parser.parse_args(argv)\n    for i in range(args.count):\n        print(f'{i:>4} {i * i}')\n",
    ),
    (
        "JSON Schema",
        56,
        r#"{"type":"object","properties":{"path":{"type":"string","description":"The file to read, relative to the workspace"},"offset":{"type":"integer","minimum":1},"limit":{"type":"integer","maximum":2000}},"required":["path"],"additionalProperties":false}"#,
    ),
    (
        "Korean",
        124,
        "그날 아침 항구는 조용했다. 배 몇 척이 동트기 전에 돌아왔고, 뱃사람들은 벽을 따라 앉아 커피를 마시며 거의 말이 없었다. 아무도 편지를 예상하지 못했고, 편지가 도착했을 때 먼저 열어 보려는 사람도 없었다.",
    ),
    (
        "Greek",
        116,
        "Εκείνο το πρωί το λιμάνι ήταν ήσυχο. Μερικές βάρκες είχαν γυρίσει πριν ξημερώσει και οι άντρες κάθονταν στον τοίχο με τον καφέ τους.",
    ),
    (
        "Arabic",
        90,
        "كان الميناء هادئا في ذلك الصباح. عادت بعض القوارب قبل الفجر، وكان الرجال يجلسون على طول الجدار يشربون القهوة ولا يتكلمون إلا قليلا.",
    ),
    (
        "French",
        60,
        "Le port était calme ce matin-là. Quelques bateaux étaient rentrés avant l'aube, et les hommes qui y travaillaient étaient assis le long du mur avec leur café, sans presque rien dire. Personne n'attendait la lettre.",
    ),
    (
        "Vietnamese",
        85,
        "Sáng hôm đó bến cảng yên tĩnh. Vài chiếc thuyền đã trở về trước bình minh, và những người làm việc trên thuyền ngồi dọc theo bức tường với tách cà phê, ít nói chuyện.",
    ),
    ("Thai", 100, "เช้าวันนั้นท่าเรือเงียบสงบ เรือไม่กี่ลำกลับเข้ามาก่อนรุ่งสาง และคนเรือนั่งเรียงกันริมกำแพงพร้อมกาแฟ แทบไม่พูดอะไรเลย"),
    (
        "hexadecimal",
        144,
        "b70a14ee1e15d7aa94bd810ec06f4cb77a346e8f33aef6bfeae3d7c4442d7a93ec31682fde561917952ff78a7a8adeffd0febc372dd26871916c46c630381b45844ecc08164e2eab27634a9adee1afa6599e589570e719784e080ce747fc0e45844b69c4d54cc264bc2dadb6bb70f53bc123beafc0f58d81ed8cd4a07c24a5a7",
    ),
    (
        "CSV",
        77,
        "2025-11-03,14:05:22,192.168.0.17,200,5123
2025-11-03,14:05:23,192.168.0.18,404,312
2025-11-03,14:05:25,10.0.0.4,200,88121
",
    ),
    (
        "log",
        72,
        "2025-11-15T10:39:02.113Z INFO gateway::rpc: run started run=r-81 session=agent:main:main waited=12ms\n2025-11-15T10:39:04.871Z WARN model: retrying attempt=2 kind=overloaded after=1.5s\n",
    ),
    (
        "HTML",
        54,
        r#"<div class="card"><h2 id="t1">Title</h2><p>Some <b>bold</b> text &amp; more.</p><a href="/x?y=1&z=2">link</a></div>"#,
    ),
    (
        "minified JavaScript",
        53,
        r#"function a(b,c){return b&&c?b.map(function(d){return d.x+c[d.y]||0}):[]}var e=a([{x:1,y:"k"}],{k:2});e.forEach(f=>{console.log(f)});"#,
    ),
    (
        "capitals",
        34,
        "THE HARBOUR WAS QUIET THAT MORNING. A FEW BOATS HAD COME IN BEFORE DAWN, AND THE MEN SAT ALONG THE WALL.",
    ),
    ("emoji", 47, "🎉🦞🚀👍😀🔥✨🐛❤️👩‍💻🇫🇷🏳️‍🌈"),
    (
        "box drawing",
        45,
        "┌────┬────┐
│ a  │ b  │
├────┼────┤
│ 1  │ 2  │
└────┴────┘
",
    ),
    ("ids", 63, "6f1c2a34-9b7d-4e05-8c3f-2d1e0a9b8c7d 0b5e8d12-47aa-4c61-9f30-e1d2c3b4a596"),
    (
        "German",
        64,
        "Der Hafen war an diesem Morgen ruhig. Einige Boote waren vor der Dämmerung zurückgekehrt, und die Männer, die auf ihnen arbeiteten, saßen schweigend mit ihrem Kaffee an der Mauer. Niemand hatte den Brief erwartet.",
    ),
    (
        "Hebrew",
        102,
        "הנמל היה שקט באותו בוקר. כמה סירות חזרו לפני עלות השחר, והאנשים שעבדו בהן ישבו לאורך הקיר עם הקפה שלהם.",
    ),
];

#[test]
fn estimates_are_close_to_a_tokenizer() {
    for (name, actual, text) in REFERENCES {
        let estimated = estimate(text);
        let ratio = estimated as f64 / actual as f64;
        assert!((0.8..=1.6).contains(&ratio), "{name}: {estimated} for {actual}");
    }
}

#[test]
fn an_empty_text_costs_nothing_and_long_runs_are_not_free() {
    for (text, tokens) in [
        (String::new(), 0),
        ("a".to_owned(), 1),
        (" ".repeat(6400), 101),
        ("\n".repeat(800), 101),
        ("-".repeat(1000), 101),
        ("9".repeat(3000), 1000),
        ("x".repeat(4_000_020), 2_000_005),
        ("語".repeat(1000), 1200),
    ] {
        assert_eq!(estimate(&text), tokens, "{:?}", text.chars().next());
    }
}

#[test]
fn a_message_counts_what_the_model_sees() {
    let image = Block::Image(ImageBlock { data: "A".repeat(100_000), ..ImageBlock::default() });
    let thinking = ThinkingBlock {
        thinking: "hm".to_owned(),
        thinking_signature: Some("sealed".repeat(100)),
        ..ThinkingBlock::default()
    };
    let call = ToolCall { name: "read".to_owned(), arguments: json!({"path": "a"}), ..ToolCall::default() };
    let content = vec![Block::text("yes"), Block::Thinking(thinking), Block::ToolCall(call)];
    let result = ToolResult {
        tool_call_id: "call".to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text("one two"), image.clone()],
        details: Some(json!({"for programs": "only"})),
        is_error: false,
        timestamp: 0,
        extra: Map::new(),
    };
    let user = |content| Message::User(User { content, timestamp: 0, extra: Map::new() });
    for (message, tokens) in [
        (user(Content::Text("one two".to_owned())), 4 + 2),
        (user(Content::Blocks(vec![Block::text("one two"), image])), 4 + 2 + 1500),
        (
            Message::Assistant(Assistant { content, ..Assistant::default() }),
            4 + 1 + 1 + 1 + estimate(r#"{"path":"a"}"#),
        ),
        (Message::ToolResult(result), 4 + 2 + 1500),
        (user(Content::Blocks(vec![Block::Other(json!({"type": "new"}))])), 4),
        (Message::Other(Map::new()), 0),
    ] {
        assert_eq!(of_message(&message), tokens, "{message:?}");
    }
}

#[test]
fn tools_count_their_names_descriptions_and_schemas() {
    let tool = ToolSpec {
        name: "read".to_owned(),
        description: "Reads a file".to_owned(),
        parameters: json!({"type": "object"}),
    };
    let one = of_tools(slice::from_ref(&tool));
    assert_eq!(one, 12 + 1 + 4 + estimate(r#"{"type":"object"}"#));
    assert_eq!((of_tools(&[]), of_tools(&[tool.clone(), tool])), (0, 2 * one));
}

/// Texts of every kind: prose, code, blobs, long runs of one letter, and arbitrary text.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z ,.]{0,200}",
        "[a-z]{0,300}",
        "[A-Za-z0-9+/]{0,300}",
        "[(){}\\[\\];:=\"' \n\ta-c0-9-]{0,200}",
        "[あ-ん一-龥а-яé🎉a-c ]{0,100}",
        "(?s).{0,100}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn estimates_of_two_texts_add_up(one in any_text(), other in any_text()) {
        let together = estimate(&format!("{one}{other}"));
        let alone = estimate(&one) + estimate(&other);
        prop_assert!(together.abs_diff(alone) <= 8, "{together} for {alone}");
        prop_assert!(together + 2 >= estimate(&one).max(estimate(&other)));
    }

    #[test]
    fn counting_by_word_equals_counting_by_character(text in any_text(), long in "[A-Z]?[a-z]{0,40}") {
        let text = format!("{text}{long}{text}");
        let mut run = CharRun { class: Class::Newline, last: '\n', length: 0 };
        let tenths: u64 = text.chars().map(|c| run.cost_of(c)).sum();
        prop_assert_eq!(estimate(&text), tenths.div_ceil(10));
    }

    #[test]
    fn estimates_are_bounded_by_text_length(text in any_text()) {
        let visible = text.chars().filter(|c| !c.is_whitespace()).count() as u64;
        let estimated = estimate(&text);
        prop_assert!(estimated * 10 >= visible && estimated <= 3 * text.chars().count() as u64);
    }
}

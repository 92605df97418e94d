use a;

fn main() -> Result<()> {
    run()
}

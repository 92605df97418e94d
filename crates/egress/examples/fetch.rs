//! Prints a page of the public internet, or why it was refused: `fetch URL [EXCEPTION]…`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, sync::Arc};

use homard_egress::{Egress, EgressException, EgressLimits, Observer, Request, SystemResolver};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: fetch URL [EXCEPTION]…")?;
    let allow = arguments.map(|text| text.parse()).collect::<Result<Vec<EgressException>, _>>()?;
    let egress = Egress::new(EgressLimits { allow, ..EgressLimits::default() }, Arc::new(SystemResolver));
    let observer = Observer::new(|hop| println!("{} {}", hop.outcome.name(), hop.host));
    let response = egress.get(&Request::new(url, "text/html").observed_by(observer)).await?;
    println!("{} {}", response.status(), response.url());
    let body = response.body().await?;
    println!("{}", String::from_utf8_lossy(&body.bytes));
    Ok(())
}

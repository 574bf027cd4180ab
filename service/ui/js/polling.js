// Looks again and again while a view is looked at. Knows nothing of what is seen.
// Always: one look ends before the next begins, and who gives no key is not asked for it again until the view is entered anew.

export class Polling {
  /** `look` is asynchronous and says itself what went wrong; it answers whether to go on. */
  constructor(look, everyMs) {
    Object.assign(this, { _look: look, _everyMs: everyMs, _turn: 0 });
  }

  async enter() {
    const turn = (this._turn += 1);
    while (turn === this._turn && (await this._look())) await new Promise((done) => setTimeout(done, this._everyMs));
  }

  leave() {
    this._turn += 1;
  }
}

export function view() { return {}; }

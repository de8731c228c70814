// Every word of the page in one place. A language is one more table; a missing word falls back to English.
const en = {
  title: "GPU memory, and why",
  lead: "How much a model needs, on which card, and how sure that is.",
  model: "Model", modelHint: "Type to search the catalogue, or any Hub id", config: "Paste a config.json instead", configHint: "Literal config.json",
  mode: "Workload", serving: "Serving", training: "Fine-tuning", plain: "Weights only",
  engine: "Engine", version: "Version", format: "Weights format", asStored: "as stored",
  gpu: "GPU", gpus: "GPUs (tensor parallel)", context: "Context (tokens)", concurrency: "Requests at once", kvType: "Cache type",
  utilization: "GPU memory utilization", framework: "Framework", method: "Method", rank: "LoRA rank", microBatch: "Micro-batch",
  sequence: "Sequence length (tokens)", checkpointing: "Gradient checkpointing", optimizer: "Optimizer", sharding: "Sharding",
  dataParallel: "Data-parallel ranks", reserve: "Your own reserve", defaults: "default",
  counter: "Counter", allocated: "allocated", reserved: "reserved", device: "device", unit: "Unit",
  required: "Required on the fullest GPU", usable: "usable", headroom: "headroom", claimed: "claimed by the engine",
  met: "fits", needs_confirmation: "needs confirmation", excluded: "does not fit", noCard: "choose a GPU for a verdict",
  peak: "Peak", phases: "Phases", items: "Where it goes", component: "Component", size: "Size", band: "95 % band", basis: "How known",
  law: "Law", source: "Source", detail: "Numbers put in", showLaw: "Show law of", reasons: "Reasons", assumptions: "Assumed defaults",
  unknowns: "Not modelled", invalidated: "What would invalidate it", field: "Field", value: "Value", why: "Why",
  curve: "Context against requests at once", curveHint: "Shaded: fits this card", curveNone: "Choose a GPU and serving to see the curve",
  oneMore: "One more request", shared: "shared", perUser: "per request",
  find: "Find packages", finding: "Judging packages…", packages: "Packages", price: "Price", hours: "h", order: "Package", verdict: "Verdict",
  missing: "Still to confirm", alternatives: "One change at a time", change: "Change", saves: "Saves", risk: "At risk", nothing: "Nothing in the catalogue serves this card as stated.",
  duration: "Duration", copyCurl: "Copy as curl", copyLaunch: "Copy launch command", share: "Copy link", copied: "Copied", language: "Language",
  rules: "Rules of thumb, for comparison", api: "API reference", working: "Estimating…", digest: "Digest", gpuIndex: "GPU", stage: "stage", sort: "Sort by",
};
export type Key = keyof typeof en;
const ru: Partial<Record<Key, string>> = {
  title: "Память GPU — и почему", lead: "Сколько нужно модели, на какой карте и насколько это точно.",
  model: "Модель", modelHint: "Начните вводить имя из каталога или любой id Hub", config: "Вставить config.json", configHint: "Содержимое config.json",
  mode: "Задача", serving: "Инференс", training: "Дообучение", plain: "Только веса", engine: "Движок", version: "Версия",
  format: "Формат весов", asStored: "как в файле", gpu: "GPU", gpus: "Число GPU (тензорный параллелизм)", context: "Контекст (токены)",
  concurrency: "Запросов одновременно", kvType: "Тип кэша", utilization: "Доля памяти GPU", framework: "Фреймворк", method: "Метод", rank: "Ранг LoRA",
  microBatch: "Микробатч", sequence: "Длина последовательности (токены)", checkpointing: "Чекпоинтинг градиентов", optimizer: "Оптимизатор",
  sharding: "Шардинг", dataParallel: "Рангов параллелизма по данным", reserve: "Ваш запас", defaults: "по умолчанию", counter: "Счётчик", unit: "Единица",
  allocated: "выделено", reserved: "зарезервировано", device: "устройство",
  required: "Нужно на самом загруженном GPU", usable: "доступно", headroom: "остаток", claimed: "занимает движок", met: "помещается",
  needs_confirmation: "нужно подтверждение", excluded: "не помещается", noCard: "выберите GPU", peak: "Пик", phases: "Фазы", items: "Из чего складывается",
  component: "Составляющая", size: "Размер", band: "Полоса 95 %", basis: "Откуда известно", law: "Формула", source: "Источник", detail: "Подставленные числа",
  showLaw: "Показать формулу:", reasons: "Причины", assumptions: "Принятые умолчания", unknowns: "Не учтено", invalidated: "Что отменит ответ", field: "Поле",
  value: "Значение", why: "Почему", curve: "Контекст и число запросов", curveHint: "Закрашено: помещается", curveNone: "Выберите GPU и инференс",
  oneMore: "Ещё один запрос", shared: "общее", perUser: "на запрос", find: "Подобрать пакеты", finding: "Оцениваем пакеты…", packages: "Пакеты", price: "Цена", hours: "ч",
  order: "Пакет", verdict: "Вердикт", missing: "Осталось подтвердить", alternatives: "По одному изменению", change: "Изменение", saves: "Экономит",
  risk: "Риск", nothing: "В каталоге нет пакета для этой карточки.", duration: "Срок", copyCurl: "Копировать как curl", copyLaunch: "Копировать команду запуска",
  share: "Копировать ссылку", copied: "Скопировано", language: "Язык", rules: "Правила большого пальца, для сравнения", api: "Справочник API",
  working: "Считаем…", digest: "Отпечаток", stage: "стадия", sort: "Сортировать по",
};
const vi: Partial<Record<Key, string>> = {
  title: "Bộ nhớ GPU, và vì sao", lead: "Mô hình cần bao nhiêu, trên card nào, và chắc đến đâu.",
  model: "Mô hình", modelHint: "Gõ để tìm trong danh mục, hoặc id bất kỳ trên Hub", config: "Dán config.json", configHint: "Nội dung config.json",
  mode: "Tác vụ", serving: "Phục vụ", training: "Tinh chỉnh", plain: "Chỉ trọng số", engine: "Engine", version: "Phiên bản", format: "Định dạng trọng số",
  asStored: "như tệp gốc", gpu: "GPU", gpus: "Số GPU (song song tensor)", context: "Ngữ cảnh (token)", concurrency: "Số yêu cầu cùng lúc", kvType: "Kiểu bộ đệm",
  utilization: "Tỷ lệ bộ nhớ GPU", framework: "Framework", method: "Phương pháp", rank: "Hạng LoRA", microBatch: "Micro-batch", sequence: "Độ dài chuỗi (token)",
  checkpointing: "Gradient checkpointing", optimizer: "Bộ tối ưu", sharding: "Phân mảnh", dataParallel: "Số hạng song song dữ liệu", reserve: "Phần dự trữ của bạn",
  defaults: "mặc định", counter: "Bộ đếm", unit: "Đơn vị", allocated: "đã cấp phát", reserved: "đã giữ chỗ", device: "thiết bị",
  required: "Cần trên GPU đầy nhất", usable: "dùng được", headroom: "còn dư", claimed: "engine chiếm", met: "vừa",
  needs_confirmation: "cần xác nhận", excluded: "không vừa", noCard: "chọn GPU để có kết luận", peak: "Đỉnh", phases: "Giai đoạn", items: "Gồm những gì",
  component: "Thành phần", size: "Kích thước", band: "Khoảng 95 %", basis: "Biết từ đâu", law: "Công thức", source: "Nguồn", detail: "Số đã thế vào",
  showLaw: "Xem công thức:", reasons: "Lý do", assumptions: "Mặc định đã giả định", unknowns: "Chưa mô hình hóa", invalidated: "Điều làm kết quả mất hiệu lực",
  field: "Trường", value: "Giá trị", why: "Vì sao", curve: "Ngữ cảnh và số yêu cầu", curveHint: "Phần tô: vừa với card này", curveNone: "Chọn GPU và phục vụ để xem",
  oneMore: "Thêm một yêu cầu", shared: "dùng chung", perUser: "mỗi yêu cầu", find: "Tìm gói", finding: "Đang xét các gói…", packages: "Các gói", price: "Giá", hours: "giờ",
  order: "Gói", verdict: "Kết luận", missing: "Còn phải xác nhận", alternatives: "Mỗi lần một thay đổi", change: "Thay đổi", saves: "Tiết kiệm", risk: "Rủi ro",
  nothing: "Không có gói nào trong danh mục phục vụ được yêu cầu này.", duration: "Thời hạn", copyCurl: "Chép lệnh curl", copyLaunch: "Chép lệnh khởi chạy",
  share: "Chép liên kết", copied: "Đã chép", language: "Ngôn ngữ", rules: "Quy tắc ước lượng, để so sánh", api: "Tài liệu API", working: "Đang tính…",
  digest: "Dấu vân", stage: "tầng", sort: "Sắp theo",
};
export const LANGUAGES: Record<string, { name: string; words: Partial<Record<Key, string>> }> = {
  en: { name: "English", words: en }, ru: { name: "Русский", words: ru }, vi: { name: "Tiếng Việt", words: vi },
};
let current: Partial<Record<Key, string>> = en;
export function speak(language: string): void {
  current = (LANGUAGES[language] ?? LANGUAGES.en!).words;
  document.documentElement.lang = language in LANGUAGES ? language : "en";
}
export function t(key: Key): string { return current[key] ?? en[key]; }
